"""Comparisons of two runs, machines, versions or corpora: one data model, one table, one page."""
