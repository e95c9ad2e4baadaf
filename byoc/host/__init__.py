"""Host side of a network: CPU parts, inference and oracle, on the model format's runtime."""
