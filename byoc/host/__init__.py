"""What runs beside the accelerator: host parts, the runtime and the oracle, on the runtime of the model's format."""
