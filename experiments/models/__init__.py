"""Built-in networks."""

from experiments.models.registry import MODELS, BuiltinModel

__all__ = ["MODELS", "BuiltinModel"]
