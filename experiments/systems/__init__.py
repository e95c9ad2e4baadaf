"""Several networks on several accelerators: systems, workloads, policies, and what becomes of the deadlines."""
