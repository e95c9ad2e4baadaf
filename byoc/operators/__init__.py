"""The operator families: from ONNX forms to the commands of a tile, everything about an operator in one class."""
