"""What runs beside the accelerator: host parts, the runtime and the oracle, all on ONNX Runtime."""
