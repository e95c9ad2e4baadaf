"""Search of a sweep's grid for the best trade-offs of two objectives.

The search does not run every point.
"""
