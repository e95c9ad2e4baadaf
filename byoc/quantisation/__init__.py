"""Float ONNX models become quantised ones."""
