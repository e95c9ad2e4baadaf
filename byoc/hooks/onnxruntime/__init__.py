"""Sources of the library that ONNX Runtime loads; ``dla.ort`` builds it."""
