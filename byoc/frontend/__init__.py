"""The importer's parts: an indexed view of the ONNX model, static shapes, and the recognition of integer units."""
