"""``dla advise``: the limiter of a network, and machine changes that save cycles."""
