"""``dla advise``: the limiter of a network on a machine, and measured changes of the machine
that save cycles.
"""
