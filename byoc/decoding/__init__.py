"""Decoders with a cache of keys and values: one integer model, bound to every position."""
