"""Comparison of two runs, machines or versions: data model, tables and page."""
