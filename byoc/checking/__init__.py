"""Comparison of the imported model with the user's file."""
