"""Host side of a network: CPU parts, inference runtime and oracle, on the model format's own runtime."""
