"""Several accelerators on one system memory (docs/systems.md)."""
