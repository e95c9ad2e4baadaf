"""The compiler and the host runtime: ONNX model to Package to Program.

The public API is :func:`import_model` and :func:`compile`; it loads when first used.
"""

from __future__ import annotations

from typing import Any

__all__ = ["compile", "import_model"]


def __getattr__(name: str) -> Any:
    """``import_model`` (ONNX model or path → Package) and ``compile`` (Package → programs), imported when asked for."""
    if name == "compile":
        from byoc.compiler import compile as compile_package

        return compile_package
    if name == "import_model":
        from byoc.importing import import_model

        return import_model
    raise AttributeError(f"module 'byoc' has no attribute '{name}'")
