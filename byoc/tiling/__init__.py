"""How an operation is cut into tiles: what fits, what it costs, which cut is best."""
