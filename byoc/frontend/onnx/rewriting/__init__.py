"""Passes on ONNX models, each from a model to a new model, and their order (:mod:`prepare`)."""
