"""Bare-metal bundles: a compiled network as C99 for firmware (docs/bare-metal.md)."""
