"""ONNX Runtime's exceptions as one clear line: a model that it cannot run is bad input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from isa.errors import InputError


@contextmanager
def readable_errors() -> Iterator[None]:
    """Turns any exception of ONNX Runtime's own within the block into an InputError with its first line."""
    try:
        yield
    except Exception as error:  # its classes share no base of their own
        if not type(error).__module__.startswith("onnxruntime."):
            raise
        text = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        detail = text.rpartition(" : ")[2].strip()
        raise InputError(f"ONNX Runtime cannot run the model ({detail}); correct or export it again") from error
