"""Passes on ONNX models, each a model in and a new one out, and their order (:mod:`prepare`)."""
