"""Operator families: one class for each operator, from its ONNX forms to the commands of a tile."""
