"""Systems of several networks on several accelerators.

The package covers workloads, scheduling policies, deadlines and reports.
"""
