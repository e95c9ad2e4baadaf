"""Schedule tuning: a search timed by the timing-only engine, with a learned cost model and reuse
of other logs.
"""
