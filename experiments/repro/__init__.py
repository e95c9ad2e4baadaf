"""Reproductions of published figures: what is run, how it is drawn, and what the publication says about it."""
