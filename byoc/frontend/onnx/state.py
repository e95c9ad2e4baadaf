"""Find the inputs of an ONNX model whose next values are outputs: its state."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, ValueInfoProto
from onnx.helper import tensor_dtype_to_np_dtype

from isa.errors import InputError, suggest_name

_WORDS = (
    (r"^(in|past|prev|previous|old)(?=[_.]|$)", ("out", "present", "next", "new", "updated")),
    (r"(?<=[_.])(in|past|prev|previous|old)$", ("out", "present", "next", "new", "updated")),
    (r"(?<=[hc])_?(0|in)?$", ("n", "_n", "_out", "out", "1", "_1", "_new")),
    (r"$", ("N", "n", "_n", "_out", "_new", "_next", "Out", "_updated")),
    (r"^", ("new_", "next_", "out_", "updated_", "present_")),
)
"""Parts of an input's name, and what the output's name has instead.

The last two only add a word, which other outputs have too: ``image_out`` is no state.
"""
_NAMES_STATE = re.compile(
    r"state|hidden|cell|cache|mem|buf|past|prev|old|(^|[_.])[hc]\d*([_.]|$)", re.IGNORECASE
)
"""Names of inputs that are state if the name of an output adds a word."""


def find_state(model: ModelProto, given: Mapping[str, str]) -> dict[str, str]:
    """Return a model's state: the ``given`` pairs of input and output, and those found by name.

    The result maps inputs to outputs. An output found by name has the name of its input but for a
    usual part, such as ``h`` and ``hn`` or ``cache_in`` and ``cache_out``, and its shape and type.
    A model's only input is no state. Raises InputError for a pair without such an input and output.
    """
    inputs = {value.name: _form(value) for value in model.graph.input}
    outputs = {value.name: _form(value) for value in model.graph.output}
    for source, result in given.items():
        for name, known, what in ((source, inputs, "input"), (result, outputs, "output")):
            if name not in known:
                raise InputError(
                    f"--state {source}={result}: the model has no {what} '{name}'; "
                    f"{suggest_name(name, known)}its {what}s are {', '.join(known)}"
                )
        if inputs[source] != outputs[result]:
            raise InputError(
                f"--state {source}={result}: the input has shape {list(inputs[source][1])} and the "
                f"output {list(outputs[result][1])}, or their types differ; give a pair of one form"
            )
    found = dict(given)
    for source, form in inputs.items() if len(inputs) > 1 else ():
        if source in found or min(form[1], default=1) <= 0:
            continue
        names = [name for name in _outputs_of(source) if outputs.get(name) == form]
        free = [name for name in names if name not in found.values()]
        if free:
            found[source] = free[0]
    return {name: found[name] for name in inputs if name in found}


def _form(value: ValueInfoProto) -> tuple[int, tuple[int, ...]]:
    kind = value.type.tensor_type
    return kind.elem_type, tuple(dim.dim_value for dim in kind.shape.dim)


def zero_state(model: ModelProto, state: Mapping[str, str]) -> dict[str, NDArray[Any]]:
    """Return zeros for the inputs of a model that are ``state``."""
    forms = {value.name: _form(value) for value in model.graph.input if value.name in state}
    return {
        name: np.zeros(shape, tensor_dtype_to_np_dtype(kind))
        for name, (kind, shape) in forms.items()
    }


def complete_feeds(
    model: ModelProto, feeds: Iterable[Mapping[str, NDArray[Any]]], given: Mapping[str, str]
) -> list[Mapping[str, NDArray[Any]]]:
    """Return inputs of a model, with zeros for state that they lack."""
    initial = zero_state(model, find_state(model, given))
    return [{**initial, **feed} for feed in feeds]


def _outputs_of(name: str) -> Iterator[str]:
    """Yield the usual names of the output for a state input."""
    if name.startswith("past_key_values"):
        yield name.replace("past_key_values", "present", 1)
    for pattern, words in _WORDS if _NAMES_STATE.search(name) else _WORDS[:-2]:
        for word in words:
            made = re.sub(pattern, word, name, count=1)
            if made != name:
                yield made
