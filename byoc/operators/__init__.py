"""Operator families: one class contains everything about an operator, from its ONNX forms to the
commands of a tile.
"""
