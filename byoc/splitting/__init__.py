"""One network on several accelerators: what each of them computes of it, and in which steps (docs/systems.md, 9)."""
