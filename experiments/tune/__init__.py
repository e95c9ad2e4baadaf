"""Schedule tuning: a search over schedules with a learned cost model.

The timing-only engine times the schedules. Logs of other tunings can be reused.
"""
