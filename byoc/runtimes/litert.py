"""Schema and single-threaded interpreter of LiteRT, the TensorFlow Lite runtime (an extra)."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from isa.errors import InputError, MissingExtraError
from isa.installation import remedy
from isa.reading import first_line

Resolver = Literal["reference", "builtin", "default"]
"""Kernel choice: reference, optimised builtin, or XNNPACK where possible (LiteRT's default)."""

_TYPES = {
    "reference": "BUILTIN_REF",
    "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
    "default": "BUILTIN",
}


_OPTIONS = {
    "BATCH_MATMUL": "BatchMatMul",
    "CONV_2D": "Conv2D",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2D",
    "AVERAGE_POOL_2D": "Pool2D",
    "MAX_POOL_2D": "Pool2D",
    "MINIMUM": "MaximumMinimum",
    "MAXIMUM": "MaximumMinimum",
    "MEAN": "Reducer",
    "SUM": "Reducer",
    "REDUCE_MAX": "Reducer",
    "REDUCE_MIN": "Reducer",
    "PADV2": "PadV2",
    "SVDF": "SVDF",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTM",
}
"""Options tables whose names do not derive from the operator's.

``RESIZE_BILINEAR``, for example, has ``ResizeBilinearOptions`` and needs no entry.
"""


def options_name(kind: str) -> str:
    """Return the name of a builtin operator's options table, which the schema may lack."""
    return _OPTIONS.get(kind, "".join(word.capitalize() for word in kind.split("_"))) + "Options"


def _make_missing_error(error: Exception) -> InputError:
    return MissingExtraError(
        f"TensorFlow Lite models need LiteRT ({error}); install it with: {remedy('tflite')}"
    )


def schema() -> Any:
    """Return the module of LiteRT's flatbuffer classes (``ModelT``, ``TensorT``, ...).

    Raises InputError without the extra.
    """
    try:
        from ai_edge_litert import schema_py_generated
    except (ImportError, OSError) as error:
        raise _make_missing_error(error) from error
    return schema_py_generated


_MISSING = re.compile(r"Didn't find op for builtin opcode '(\w+)' version '(\d+)'")
_REMEDIES: dict[Resolver, str] = {
    "reference": "LiteRT's reference kernels (numerics fixed) do not have it; use --set "
    "numerics=onnxruntime",
    "builtin": "LiteRT does not have it; install a newer one or convert the model for an older one",
}


@contextmanager
def readable_errors(thing: str, resolver: Resolver = "default") -> Iterator[None]:
    """Turn exceptions of LiteRT in the block into a one-line InputError about ``thing``.

    ``resolver`` is the requested kernel choice, for the remedy in the message.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        detail = first_line(error)
        if missing := _MISSING.search(detail):
            remedy = _REMEDIES.get(resolver, _REMEDIES["builtin"])
            raise InputError(f"operator {missing[1]}, version {missing[2]}: {remedy}") from error
        raise InputError(
            f"LiteRT cannot run {thing} ({detail}); correct or convert it again"
        ) from error


def interpreter(
    model: bytes, resolver: Resolver = "reference", *, keep: bool = False, thing: str = "the model"
) -> Any:
    """Return a LiteRT ``Interpreter`` of a model, with allocated tensors.

    ``keep`` preserves intermediate tensors for reading. ``thing`` is the model's name in messages.
    Raises InputError without the extra, and for a model that LiteRT rejects.
    """
    try:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType
    except (ImportError, OSError) as error:
        raise _make_missing_error(error) from error
    with readable_errors(thing, resolver):
        made = Interpreter(
            model_content=model,
            num_threads=1,
            experimental_op_resolver_type=OpResolverType[_TYPES[resolver]],
            experimental_preserve_all_tensors=keep,
        )
        made.allocate_tensors()
    return made


def find_delegated(made: Any) -> list[tuple[list[int], list[int]]]:
    """Return the parts of a model that XNNPACK runs, each as (inputs, outputs) tensor indices."""
    parts = (one for one in made._get_ops_details() if one["op_name"] == "DELEGATE")
    return [(one["inputs"].tolist(), one["outputs"].tolist()) for one in parts]


ALIGNMENT = 16
"""Alignment of a constant's data in bytes, as the schema requires."""


def pack_model(model: Any) -> bytes:
    """Serialise a ``ModelT`` to a flatbuffer with the identifier TFL3 and aligned constants."""
    import flatbuffers

    class Aligned:
        """``BufferT`` with aligned data; the schema's own class ignores the alignment."""

        def __init__(self, buffer: Any) -> None:
            self.buffer = buffer

        def Pack(self, builder: Any) -> int:  # noqa: N802
            """Write the buffer of a constant; flatbuffers prescribes the method's name."""
            if self.buffer.data is not None:
                builder.Prep(ALIGNMENT, len(self.buffer.data))
            return int(self.buffer.Pack(builder))

    model.buffers = [Aligned(buffer) for buffer in model.buffers]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())
