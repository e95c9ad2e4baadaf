"""Saved results as a collection: lists of runs and sweeps, and a server that shows them."""
