"""Run report: schema, tables, charts and pages."""
