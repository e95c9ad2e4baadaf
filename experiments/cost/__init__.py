"""Estimates of energy and area from a cost table in which every figure names its source."""
