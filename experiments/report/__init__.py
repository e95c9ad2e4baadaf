"""Run report - schema, tables, plots."""
