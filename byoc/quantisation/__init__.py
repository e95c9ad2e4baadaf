"""Quantisation of float ONNX models."""
