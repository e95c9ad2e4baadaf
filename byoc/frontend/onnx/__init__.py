"""ONNX: files, static shapes, the recognition of integer units, and the import."""
