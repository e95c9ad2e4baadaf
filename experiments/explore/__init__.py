"""Search of a sweep's grid for the best trade-offs of two objectives, without running every
point.
"""
