"""Comparison of two runs, machines, versions or corpora: data model, tables and page."""
