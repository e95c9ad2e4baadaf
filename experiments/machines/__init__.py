"""Machines of others as descriptions: limits and cycle formulas instead of a simulator."""
