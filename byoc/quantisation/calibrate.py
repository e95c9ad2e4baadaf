"""Calibration: observe the ranges of float tensors on samples, and share ranges."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto
from onnx.helper import make_node, make_tensor_value_info, tensor_dtype_to_np_dtype

from byoc.frontend.onnx.reading import read_node, rows_to_choose, softmax_operands
from byoc.operators.forms import Form, Limits
from byoc.operators.reduction import EXTREMES_AND_SUM
from byoc.operators.registry import load_installed_families
from byoc.runtimes.pieces import Run, run_in_pieces
from byoc.runtimes.protobuf import (
    SHARED_BYTES,
    ConstantArrays,
    is_float32,
    make_unused_name,
    names_of,
    step_family,
    use_counts,
)
from byoc.runtimes.session import (
    keep_no_memory,
    lean_session,
    readable_errors,
    value_bytes,
)
from isa import memory
from isa.errors import InputError

Feeds = Mapping[str, NDArray[np.generic]]
NO_FEEDS: Feeds = MappingProxyType({})
Pairs = Mapping[str, str]
"""Output by input, for inputs that are state."""
NO_STATE: Pairs = MappingProxyType({})
Ranges = dict[str, tuple[np.float32, np.float32]]
DEFAULT_FEEDS = 4
"""Number of samples drawn if none are given."""
_DRAWN_BYTES = 8
"""Bytes of a drawn number before it is converted to its input's type."""
_SMALL = 1 << 20
"""Maximum elements of a constant that is searched for -inf."""
MUCH = 1 << 30
"""Total bytes of large tensors from which :func:`_observer` reduces each at once."""
_NO_BOUND = np.float32(np.inf)
"""Limit of a range that no clamp bounds."""
NEGLIGIBLE = np.float32(16)
"""Distance below a row's maximum from which a Softmax operand counts as negligible.

Softmax turns it into at most e^-16 of the maximum's result. Attention masks therefore need no range
of their own.
"""


def default_feeds(
    model: ModelProto, seed: int, count: int = DEFAULT_FEEDS
) -> Iterator[dict[str, NDArray[np.generic]]]:
    """Yield ``count`` random feeds: standard-normal floats, booleans, and any 8-bit integers.

    Integers that select rows of tables are drawn from the valid row numbers. All other integers
    are zeros, or ones in a model with masks of -inf, where a mask of zeros would leave no position
    to attend to. Raises InputError before drawing numbers that would exceed the memory limit.
    """
    generator = np.random.default_rng(seed)
    rows = rows_to_choose(model)
    others = int(_has_infinite_mask(model))
    for _ in range(count):
        feeds: dict[str, NDArray[np.generic]] = {}
        for value in model.graph.input:
            shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
            dtype = np.dtype(tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
            memory.require(
                prod(shape) * (_DRAWN_BYTES + count * dtype.itemsize),
                f"numbers for input '{value.name}'",
            )
            if np.issubdtype(dtype, np.floating):
                feeds[value.name] = generator.standard_normal(shape).astype(dtype)
            elif value.name not in rows and dtype in (np.int8, np.uint8):
                feeds[value.name] = generator.integers(0, 256, shape, np.uint8).view(dtype)
            else:
                drawn = generator.integers(
                    2 if dtype == np.bool_ else rows.get(value.name, 1), size=shape
                )
                if dtype != np.bool_ and value.name not in rows:
                    drawn += others
                feeds[value.name] = (drawn.astype(str) if dtype.kind == "O" else drawn).astype(
                    dtype
                )
        yield feeds


def _has_infinite_mask(model: ModelProto) -> bool:
    """Return True if a small float constant of a model contains -inf."""
    small = ConstantArrays(model.graph, lambda one: is_float32(one) and prod(one.dims) <= _SMALL)
    return any(np.isneginf(small[name]).any() for name in small)


def _find_range(
    array: NDArray[Any], softmax_axis: int | None
) -> tuple[np.floating[Any], np.floating[Any]]:
    """Return minimum and maximum of a tensor; zeros for an empty one.

    For the operand of a Softmax along ``softmax_axis``, the minimum is at most NEGLIGIBLE below the
    smallest maximum of its rows.
    """
    if not array.size:
        return np.float32(0), np.float32(0)
    low = np.float32(array.min())
    if softmax_axis is not None:
        low = max(low, array.max(axis=softmax_axis).min() - NEGLIGIBLE)
    return low, np.float32(array.max())


def observe_ranges(
    model: ModelProto, feeds: Iterable[Feeds], heard: Callable[[Feeds], None] = lambda outputs: None
) -> Ranges:
    """Return minimum and maximum of every float32 tensor over all ``feeds``.

    Tensors are inputs, outputs and intermediates. Runs the float model on ONNX Runtime, one thread,
    one feed at a time; ``heard`` is called with its outputs for each feed. In a tensor that only a
    Softmax reads, values more than NEGLIGIBLE below their row's maximum do not count; they may be
    -inf. The same applies to tensors from which only such a tensor is computed.

    Raises:
        ValueError: there is no feed.
        InputError: ONNX Runtime cannot run the model, or a value is infinite or not a number.
    """
    softmaxes = softmax_operands(model)
    observed = {value.name: value for value in _float_results(model)}
    outputs = {value.name: value for value in model.graph.output}
    whole = {*softmaxes, *outputs}
    reduced = [
        value
        for name, value in observed.items()
        if value_bytes(value) >= SHARED_BYTES and name not in whole
    ]
    taken = names_of(model.graph)
    large = {
        v.name: tuple(make_unused_name(f"{v.name}:{kind}", taken) for kind in EXTREMES_AND_SUM)
        for v in reduced
    }
    shown = {name: v for name, v in {**observed, **outputs}.items() if name not in large}
    make_run = partial(_observe_piece, shown, reduced, large)
    run = run_in_pieces(model, shown, observed, make_run, by_size=True)
    inputs = [
        value.name
        for value in model.graph.input
        if value.type.tensor_type.elem_type == TensorProto.FLOAT
    ]
    ranges: Ranges = {}
    for feed in feeds:
        results = run(feed)
        heard({name: results[name] for name in outputs})
        for name, reductions in large.items():
            least, most, total = (results.pop(each) for each in reductions)
            results[name] = np.array([least, most, total if np.isnan(total) else least])
        for name, array in chain(
            ((n, results[n]) for n in observed), ((n, feed[n]) for n in inputs)
        ):
            low, high = _find_range(array, softmaxes.get(name))
            old = ranges.get(name, (low, high))
            ranges[name] = (min(low, old[0]), max(high, old[1]))
    if not ranges:
        raise ValueError("no calibration data: give at least one feed")
    _cut_ranges(model, ranges, softmaxes)
    for name, limits in ranges.items():
        if not np.isfinite(limits).all():
            raise InputError(_not_finite(model, name, *limits))
    return {name: _usable(*limits) for name, limits in ranges.items()}


def _not_finite(model: ModelProto, name: str, low: np.float32, high: np.float32) -> str:
    """Return the message for a tensor with an infinite range, with its cause and a remedy."""
    text = (
        f"tensor '{name}' ranges from {low:g} to {high:g} on the calibration data, which int8 "
        "cannot hold"
    )
    constants = ConstantArrays(model.graph, is_float32)
    for node in (node for node in model.graph.node if name in node.output):
        wrong = [
            each
            for each in node.input
            if each in constants and not np.isfinite(constants[each]).all()
        ]
        if wrong:
            return f"{text}: correct the constant '{wrong[0]}'"
        text += f": mask what its {node.op_type} reads rather than what it makes"
    return f"{text}, or give finite samples with --calibration"


def _cut_ranges(model: ModelProto, ranges: Ranges, cut: Collection[str]) -> None:
    """Narrow, in place, the ranges of the tensors ``cut`` to the parts that their consumers use.

    The ranges of tensors that only these tensors are computed from are narrowed too.
    """
    uses, constants = use_counts(model.graph), ConstantArrays(model.graph, is_float32)
    found: dict[str, list[Limits]] = {}

    def is_cut(name: str) -> bool:
        """Narrow a tensor's range if every consumer uses only a part of it.

        Return True if the tensor is in ``cut`` or every consumer uses only a part of its range.
        """
        limits = found.get(name, [])
        if name in ranges and limits and len(limits) == uses[name]:
            low, high = ranges[name]
            ranges[name] = (
                max(low, np.float32(min(limits)[0])),
                min(high, np.float32(max(most for _, most in limits))),
            )
        return name in cut or len(limits) == uses[name]

    for node in reversed(model.graph.node):
        if is_cut(node.output[0]):
            for position, limits in useful_limits(node, ranges, constants):
                found.setdefault(node.input[position], []).append(limits)
    for value in model.graph.input:
        is_cut(value.name)


def useful_limits(
    node: NodeProto, ranges: Ranges, constants: Mapping[str, NDArray[Any]]
) -> Iterator[tuple[int, Limits]]:
    """Yield (position, limits) of operands whose values beyond the limits change no result."""
    found = load_installed_families().forms.get(node.op_type)
    if found is None or node.output[0] not in ranges:
        return
    known: list[Limits | None] = []
    for name in node.input:
        array = constants.get(name)
        limits = ranges.get(name) if array is None or not array.size else (array.min(), array.max())
        known.append(None if limits is None else (float(limits[0]), float(limits[1])))
    low, high = ranges[node.output[0]]
    result = float(low), float(high)
    for position in range(len(node.input)):
        limits = found[0].useful(read_node(node, node.name), position, known, result)
        if limits is not None:
            yield position, limits


def _observe_piece(
    shown: Mapping[str, ValueInfoProto],
    large: Sequence[ValueInfoProto],
    reductions: Mapping[str, Sequence[str]],
    piece: ModelProto,
) -> Run:
    """Return :func:`_observer` of a piece of a model and of the tensors that the piece computes."""
    own = {value.name: value for value in piece.graph.output}
    made = {*own, *(name for node in piece.graph.node for name in node.output)}
    return _observer(
        piece,
        [value for name, value in {**shown, **own}.items() if name in made],
        [value for value in large if value.name in made],
        reductions,
    )


def _observer(
    model: ModelProto,
    shown: Sequence[ValueInfoProto],
    large: Sequence[ValueInfoProto],
    reductions: Mapping[str, Sequence[str]],
) -> Run:
    """Return a function that runs a model on one sample and returns observed tensors.

    It returns the tensors ``shown`` and reductions of the tensors ``large``. ``reductions`` gives
    the names of each large tensor's minimum, maximum and sum. Shown tensors are all in memory at
    the same time. Tensors that are shown or reduced are not fused with others.
    """
    import onnxruntime

    nodes = [
        make_node(kind, [value.name], [made], keepdims=0)
        for value in large
        for kind, made in zip(EXTREMES_AND_SUM, reductions[value.name], strict=True)
    ]
    outputs = [
        *shown,
        *(make_tensor_value_info(node.output[0], TensorProto.FLOAT, []) for node in nodes),
    ]
    names = [value.name for value in outputs]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    keep_no_memory(options)
    if sum(map(value_bytes, large)) >= MUCH:
        # Reduce each tensor right after its computation. The optimiser's own layouts would delay
        # the conversion back to the end.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    with readable_errors():
        session, shared = lean_session(model, options, outputs, nodes)

    def run(feed: Feeds) -> dict[str, NDArray[Any]]:
        assert shared is not None  # must live as long as the session
        with readable_errors():
            return dict(zip(names, session.run(names, dict(feed)), strict=True)) if names else {}

    return run


def _usable(low: np.float32, high: np.float32) -> tuple[np.float32, np.float32]:
    """Extend a range to include zero and not be empty, as scale and zero point require."""
    low = min(low, np.float32(0))
    high = max(high, np.float32(0))
    return (low, high) if high - low > 1e-6 else (low, np.float32(low + 1))


def _float_results(model: ModelProto) -> list[ValueInfoProto]:
    """Return all float32 results of the model's nodes."""
    known: dict[str, ValueInfoProto] = {
        value.name: value for value in (*model.graph.value_info, *model.graph.output)
    }
    return [
        known[name]
        for node in model.graph.node
        for name in node.output
        if _is_float(known.get(name))
    ]


def has_floats(model: ModelProto) -> bool:
    """Return True if any node of a model with inferred shapes computes or reads a float32 value."""
    known = {
        value.name: value
        for value in (*model.graph.input, *model.graph.value_info, *model.graph.output)
    }
    return any(
        _is_float(known.get(name))
        for node in model.graph.node
        for name in (*node.input, *node.output)
    )


def _is_float(value: ValueInfoProto | None) -> bool:
    return value is not None and value.type.tensor_type.elem_type == TensorProto.FLOAT


def share_ranges(
    model: ModelProto, ranges: Ranges, state: Pairs = NO_STATE, initial: Feeds = NO_FEEDS
) -> Ranges:
    """Widen ``ranges`` so that operands and results of Concat, Min and Max have equal ranges.

    Tensors that correspond in all steps of a recurrent layer also share a range. So do operands and
    results of pooling and reshaping, which are quantised alike. A group does not share a range if a
    Relu or Clip result in it would get a lower low end, or a Clip result a higher high end: the
    activation could then not be removed as a clamp.

    A result's range is also widened if its operand's range is wider by more than the ratio that the
    operator's form allows. An input that is ``state`` has the range of its output, so that both
    have one scale; its ``initial`` value widens that range.
    """
    forms = _forms(model)
    following = {source: result for source, result in state.items() if result in ranges}
    ranges = {**ranges, **{source: ranges[result] for source, result in following.items()}}
    for source in initial.keys() & following.keys():
        ends = (np.float32(limit(initial[source])) for limit in (np.min, np.max))
        least, most = zip(ranges[source], ends, strict=True)
        ranges[source] = min(least), max(most)
    lower = {node.output[0] for node, form in forms if "low" in form.clamps}
    upper = {node.output[0] for node, form in forms if "high" in form.clamps}
    groups: dict[str, _SharedRange] = {}
    families: dict[str, _SharedRange] = {}
    for name, (low, high) in ranges.items():
        floor = low if name in lower else -_NO_BOUND
        ceiling = high if name in upper else _NO_BOUND
        own = _SharedRange([name], low, high, floor, ceiling)
        groups[name] = families.setdefault(step_family(name) or name, own)
        groups[name].absorb(own)
    for source, result in following.items():
        if source in groups:
            _merge_groups(groups, [groups[source], groups[result]])
    first = [(node, form) for node, form in forms if form.ranges == "first"]
    shared_by_all = [(node, form) for node, form in forms if form.ranges == "all"]
    for node, form in (*first, *shared_by_all):
        operands = node.input[:1] if form.ranges == "first" else node.input
        members = list(
            dict.fromkeys(groups[name] for name in (*operands, *node.output[:1]) if name in groups)
        )
        if len(members) < 2 or (form.ranges == "all" and _is_wider_than_clamp(members)):
            continue
        _merge_groups(groups, members)
    for node, form in forms:
        if form.range_ratio and node.input[0] in groups and node.output[0] in groups:
            groups[node.output[0]].widen(groups[node.input[0]].width / np.float32(form.range_ratio))
    return {name: (group.low, group.high) for name, group in groups.items()}


def _merge_groups(groups: dict[str, _SharedRange], members: Sequence[_SharedRange]) -> None:
    """Merge groups of tensors into the largest of them."""
    largest = max(members, key=lambda group: len(group.names))
    for group in members:
        if group is not largest:
            largest.absorb(group)
            groups |= dict.fromkeys(group.names, largest)


@dataclass(eq=False)
class _SharedRange:
    """Quantisation range that a group of tensors shares.

    ``floor`` is the greatest low end among the results of clamps from below. ``ceiling`` is the
    least high end among the results of clamps from above. Groups merge into the larger one, so that
    n merges take n log n steps.
    """

    names: list[str]
    low: np.float32
    high: np.float32
    floor: np.float32
    ceiling: np.float32

    @property
    def width(self) -> np.float32:
        """Width of the range: high end minus low end."""
        return np.float32(self.high - self.low)

    def absorb(self, other: _SharedRange) -> None:
        """Add the tensors of another group to this shared range."""
        if other is not self:
            self.names += other.names
            self.low, self.high = min(self.low, other.low), max(self.high, other.high)
            self.floor, self.ceiling = (
                max(self.floor, other.floor),
                min(self.ceiling, other.ceiling),
            )

    def widen(self, required: np.float32) -> None:
        """Move both ends of a range away from zero by one factor if the range is too narrow.

        It must not be narrower than ``required``.
        """
        if self.width < required:
            factor = required / self.width
            self.low, self.high = np.float32(self.low * factor), np.float32(self.high * factor)


def _is_wider_than_clamp(groups: Sequence[_SharedRange]) -> bool:
    """Return True if the groups' common range exceeds the result range of a clamp in one."""
    low = min(group.low for group in groups)
    high = max(group.high for group in groups)
    return any(group.floor > low or group.ceiling < high for group in groups)


def _forms(model: ModelProto) -> list[tuple[NodeProto, Form]]:
    """Return the nodes whose operator type is known to operator families, each with its form."""
    known = load_installed_families().forms
    return [(node, known[node.op_type][1]) for node in model.graph.node if node.op_type in known]
