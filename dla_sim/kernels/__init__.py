"""Fast executions of instruction semantics."""
