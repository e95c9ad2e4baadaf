"""Comparison of the imported graph with the user's file."""
