"""Descriptions of other machines: limits and cycle formulas instead of a simulator."""
