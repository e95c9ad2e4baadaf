"""Systems of several networks on several accelerators: workloads, scheduling policies,
deadlines, reports.
"""
