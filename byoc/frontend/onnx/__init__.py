"""ONNX front end: files, static shapes, recognition of integer units, and import."""
