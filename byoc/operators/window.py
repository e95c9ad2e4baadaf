"""Sliding windows of convolutions and pools: their ONNX forms, loop nest and registers."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, NamedTuple

from byoc.graph import Graph, Node
from byoc.operators.copies import copies
from byoc.operators.domain import check_size, too_large
from byoc.operators.forms import Kinds, Written, integer, several
from byoc.operators.geometry import Geometry
from byoc.operators.nest import LoopNest, Tile
from byoc.operators.operator import Operator
from byoc.operators.pieces import Dim, Piece, merge_dims
from byoc.operators.records import MANY, Loops, Operand, Registers, Traits
from byoc.operators.rules import Finding, finding, rule
from byoc.operators.sharding import AXES, Along, Sharding, Span
from byoc.options import Target

ATTRIBUTES = ("kernel", "strides", "dilations", "pads")
"""Attributes of every canonical node with a window."""


class _Rows(NamedTuple):
    """Input rows that a node's window reads for given rows of its result.

    The input has ``height`` rows.
    """

    node: Node
    height: int

    def _reach_span(self, span: Span) -> Span:
        """Return the input rows that result rows read, including rows of padding."""
        attributes = self.node.attributes
        start, stop = span
        stride = attributes["strides"][0]
        kernel = attributes["kernel"][0]
        dilation = attributes["dilations"][0]
        top = attributes["pads"][0]
        return start * stride - top, (stop - 1) * stride - top + (kernel - 1) * dilation + 1

    def read(self, span: Span) -> Span:
        """Return the input rows that result rows read, without rows of padding."""
        first, last = self._reach_span(span)
        return max(0, first), min(self.height, last)

    def attributes(self, span: Span) -> Mapping[str, Any]:
        """Return the padding that remains for a range of result rows."""
        first, last = self._reach_span(span)
        _, left, _, right = self.node.attributes["pads"]
        return {"pads": (max(0, -first), left, max(0, last - self.height), right)}


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowOperator(Operator):
    """Operator with a sliding window over the planes of one input.

    The input is (C, H, W) and the output (OC, OH, OW). ``pads``: top, left, bottom, right.
    """

    traits: ClassVar[Traits] = Traits(mapping="many-to-many")
    kinds: ClassVar[Kinds] = {
        **dict.fromkeys(("kernel", "strides", "dilations"), several(integer(1))),
        "pads": several(integer(-MANY)),
    }

    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    @property
    def window(self) -> tuple[int, int]:
        raise NotImplementedError

    @property
    def channel_groups(self) -> int:
        raise NotImplementedError

    @property
    def loops(self) -> Loops:
        """Loops over output channels, rows and columns, with the halo of the window."""
        oc, oh, ow = self.output.shape
        ic, ih, iw = self.inputs[0].shape
        stride = self.strides[0]
        dilation = self.dilations[0]
        window = self.window[0], stride, dilation, self.pads[0]
        nest = LoopNest(oc, oh, ow, ic, ih, iw, *window, self.channel_groups)
        return Loops(nest, planes=True, kernel=self.window)

    def window_registers(self) -> Registers:
        height, width = self.window
        return {
            "EX_KERNEL_HEIGHT": height,
            "EX_KERNEL_WIDTH": width,
            "EX_STRIDE_HEIGHT": self.strides[0],
            "EX_STRIDE_WIDTH": self.strides[1],
            "EX_DILATION_HEIGHT": self.dilations[0],
            "EX_DILATION_WIDTH": self.dilations[1],
            "EX_PAD_LEFT": self.pads[1],
        }

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Return the sizes of the input and output box, and the padding above the input box."""
        output = tile.output
        source = tile.input
        return {
            "EX_INPUT_CHANNELS": source.channels.size,
            "EX_INPUT_HEIGHT": source.rows.size,
            "EX_INPUT_WIDTH": source.columns.size,
            "EX_OUTPUT_CHANNELS": output.channels.size,
            "EX_OUTPUT_HEIGHT": output.rows.size,
            "EX_OUTPUT_WIDTH": output.columns.size,
            "EX_PAD_TOP": tile.pad_top,
        }

    def finer(self) -> tuple[Operator, ...]:
        """Return the window operator on planes reshaped to one column, or () if impossible.

        Tiles can divide such planes. Planes of one row and windows of one element can be reshaped.
        """
        (source,) = self.inputs
        result = self.output
        alone = self.window == self.strides == (1, 1) and not any(self.pads)
        if source.shape[2] == 1 or not (alone or _is_line(self)):
            return ()
        turned = replace(
            self,
            inputs=(upright(source),),
            output=upright(result),
            strides=(self.strides[1], self.strides[0]),
            dilations=(self.dilations[1], self.dilations[0]),
            pads=(self.pads[1], self.pads[0], self.pads[3], self.pads[2]),
            **self.transpose_fields(),
        )
        return (turned,)

    def transpose_fields(self) -> dict[str, Any]:
        """Return further fields that change when a window's rows and columns are exchanged."""
        return {}

    def cut_columns(self) -> tuple[Operator, ...]:
        """Return two operations on copies of the columns that each half of the result reads.

        The result is copied from them. It is empty if a half reads only padding.
        """
        width = self.output.shape[2]
        if width == 1 or self.output.dtype != "int8":
            return ()
        spans = (0, width // 2), (width // 2, width)
        parts = [self._compute_columns(*span) for span in spans]
        return tuple(chain.from_iterable(zip(*parts, strict=True))) if all(parts) else ()

    def _compute_columns(self, first: int, end: int) -> tuple[Operator, ...]:
        """Return the operations that compute columns ``first`` to ``end`` of the result.

        They copy columns of the input, compute, and copy columns to the result. There are none if
        the columns read only padding.
        """
        (source,), result = self.inputs, self.output
        top, left, bottom, _ = self.pads
        reach = (self.window[1] - 1) * self.dilations[1] + 1
        start, stop = first * self.strides[1] - left, (end - 1) * self.strides[1] - left + reach
        begin, behind = max(start, 0), min(stop, source.shape[2])
        if begin >= behind:
            return ()
        name = f"{result.value}@{result.offset}:columns{first}"
        read = Operand(f"{name}:read", (*source.shape[:2], behind - begin))
        written = Operand(name, (*result.shape[:2], end - first))
        pads = (top, max(-start, 0), bottom, max(stop - source.shape[2], 0))
        part = replace(self, inputs=(read,), output=written, pads=pads)
        return (
            *self._copy_columns(source, begin, read, 0),
            part,
            *self._copy_columns(written, 0, result, first),
        )

    def _copy_columns(
        self, source: Operand, begin: int, target: Operand, first: int
    ) -> tuple[Operator, ...]:
        """Return the copy of columns of planes, from column ``begin`` on to ``first`` on.

        Its length is that of the narrower operand.
        """
        channels, rows, width = source.shape
        columns = target.shape[2]
        dims = (
            Dim(channels, rows * width, rows * columns),
            Dim(rows, width, columns),
            Dim(min(width, columns), 1, 1),
        )
        piece = Piece(source.offset + begin, target.offset + first, merge_dims(dims))
        return copies(self.name, self.onnx_nodes, source.value, target.value, (piece,))

    @classmethod
    def divide(cls, graph: Graph, node: Node, along: Along) -> Sharding | str:
        """Divide a window operator among machines by rows, with the halo of the window.

        Constants are read whole.
        """
        if along != "rows" or len(node.attributes.get("kernel", ())) != 2:
            return super().divide(graph, node, along)
        source, *others = (graph.values[name] for name in node.inputs)
        if source.constant is not None or any(value.constant is None for value in others):
            return "its weights are computed"
        axis = AXES[along]
        rows = _Rows(node, source.shape[AXES[along]])
        size = graph.values[node.outputs[0]].shape[axis]
        return Sharding(axis, size, (axis, *[None] * len(others)), rows.read, rows.attributes)

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if a window's size is missing or it exceeds the padded input."""
        source, result = (value.shape for value in graph.ends(node))
        if "kernel" not in node.attributes:
            fits = len(source) >= 2 and len(result) == len(source)
            return None if fits else f"'{node.name}' pools shape {source}"
        spatial = len(source) - 2
        lengths = [len(node.attributes[key]) for key in ATTRIBUTES]
        fits = lengths == [spatial, spatial, spatial, 2 * spatial] and len(result) == len(source)
        if fits and source[0] == result[0] and _is_inside(node.attributes, source[2:], result[2:]):
            return None
        return f"the window of '{node.name}' does not fit input {source} and output {result}"


def _is_line(window: WindowOperator) -> bool:
    rows = window.inputs[0].shape[1], window.output.shape[1], window.window[0]
    return rows == (1, 1, 1) and not any(window.pads[::2])


def column(operation: Operator) -> Operator | None:
    """Return a window operator on planes of one row, changed to planes of one column.

    The result is None for other operations.
    """
    if not isinstance(operation, WindowOperator) or not _is_line(operation):
        return None
    return next(iter(WindowOperator.finer(operation)), None)


def upright(operand: Operand) -> Operand:
    """Return an operand with its planes reshaped to one column."""
    channels, rows, columns = operand.shape
    return replace(operand, shape=(channels, rows * columns, 1))


def _is_inside(
    attributes: Mapping[str, Any], source: tuple[int, ...], result: tuple[int, ...]
) -> bool:
    """Return True if the last window along every dimension ends inside the padded input."""
    rank = len(source)
    for axis, (size, count) in enumerate(zip(source, result, strict=True)):
        reach = (attributes["kernel"][axis] - 1) * attributes["dilations"][axis] + 1
        padded = size + attributes["pads"][axis] + attributes["pads"][rank + axis]
        if (count - 1) * attributes["strides"][axis] + reach > padded:
            return False
    return True


def read_window(written: Written, *, cuts: bool = False) -> dict[str, tuple[int, ...]] | str:
    """Return the attributes of an operator's window, or why they cannot be read.

    Without ``kernel_shape`` its weights define the kernel.

    The result is empty for a form without a window. A text says why it cannot be read: window,
    input and result have different ranks, or a stride is below 1. ``cuts`` is explained in
    :func:`window_attributes`.
    """
    attributes = written.node.attributes
    source = written.operand_shape()
    result = written.result_shape
    names = ("kernel_shape", "strides", "dilations", "pads")
    named = {name: attributes[name] for name in names if name in attributes}
    kernel = named.get("kernel_shape") or (
        written.operand_shape(1)[2:] if len(written.operands) > 1 else ()
    )
    rank = len(source) - 2
    lengths = {len(values) // (2 if name == "pads" else 1) for name, values in named.items()}
    positive = all(
        value > 0 for name, values in named.items() if name != "pads" for value in values
    )
    if (
        rank < 1
        or len(result) != len(source)
        or len(kernel) not in (0, rank)
        or lengths - {rank}
        or not positive
    ):
        return f"its window {named} does not fit input {source} and output {result}"
    if not written.form.attributes:
        return {}
    declared = attributes.get("kernel_shape")
    kernel = tuple(declared) if declared else written.operand_shape(1)[2:]
    return window_attributes(
        attributes, kernel, written.operand_shape()[2:], written.result_shape[2:], cuts=cuts
    )


def window_attributes(
    attributes: Mapping[str, Any],
    kernel: tuple[int, ...],
    source: tuple[int, ...],
    result: tuple[int, ...],
    *,
    cuts: bool = False,
) -> dict[str, tuple[int, ...]]:
    """Return ``kernel``, ``strides``, ``dilations`` and ``pads`` of a window operator.

    ``pads`` has all begins, then all ends. ``source`` and ``result`` are the spatial shapes. Pads
    are chosen so that the floor formula gives ``result``: ``auto_pad`` is resolved, and the last
    window of ``ceil_mode`` becomes padding at the end. If strides exceed the kernel, equal padding
    on both sides can be negative. With ``cuts`` it stays negative, as in ONNX Runtime's pools;
    without, it becomes 0, as in its convolutions (onnxruntime/core/providers/common.h, ComputePad).
    """
    rank = len(kernel)
    strides = tuple(attributes.get("strides", (1,) * rank))
    dilations = tuple(attributes.get("dilations", (1,) * rank))
    explicit = tuple(attributes.get("pads", (0,) * (2 * rank)))
    auto_pad = attributes.get("auto_pad", "NOTSET")
    begins = []
    ends = []
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilations[axis] + 1
        needed = (result[axis] - 1) * strides[axis] + reach - source[axis]
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            total = needed if cuts else max(needed, 0)
            begin = int((total + (auto_pad == "SAME_LOWER")) / 2)  # rounded towards zero
            end = total - begin
        else:
            begin, end = (0, 0) if auto_pad == "VALID" else (explicit[axis], explicit[rank + axis])
            end = max(end, needed - begin)
        begins.append(begin)
        ends.append(end)
    return {"kernel": kernel, "strides": strides, "dilations": dilations, "pads": (*begins, *ends)}


def two_dimensional(
    node: Node,
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int, int, int]]:
    """Return strides, dilations and pads of a one- or two-dimensional window.

    Pads are (top, left, bottom, right).
    """
    strides, dilations, pads = (node.attributes[key] for key in ("strides", "dilations", "pads"))
    if len(strides) == 1:
        return (1, strides[0]), (1, dilations[0]), (0, pads[0], 0, pads[1])
    return (
        (strides[0], strides[1]),
        (dilations[0], dilations[1]),
        (pads[0], pads[1], pads[2], pads[3]),
    )


@rule("only 1-D and 2-D windows run on the accelerator")
def one_or_two_dimensional(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a window does not have one or two dimensions, or None."""
    rank = len(graph.values[node.inputs[0]].shape) - 2
    return None if rank in (1, 2) else finding("the window has {rank} dimensions", rank=rank)


@rule("padding at the start of an axis is not negative")
def uncut_input(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if the padding at the start of an axis is negative, or None."""
    pads = node.attributes.get("pads", ())
    begins = pads[: len(pads) // 2]
    return finding("pads are {pads}", pads=pads) if min(begins, default=0) < 0 else None


def check_window_fields(
    shapes: tuple[tuple[int, ...], ...], window: tuple[int, ...], target: Target
) -> Finding | None:
    """Return a finding for the first size or window attribute that exceeds its register.

    Of the window attributes, only the largest is checked. ``window``: heights and widths of kernel,
    strides and dilations, then the pads in ONNX order.
    """
    names = [
        f"{name} ({side})"
        for name in ("kernel_shape", "strides", "dilations")
        for side in ("height", "width")
    ]
    names += [f"pads ({side})" for side in ("top", "left", "bottom", "right")]
    largest, name = max(zip(window, names, strict=True), key=lambda item: item[0])
    return too_large(shapes, target) or check_size(name, largest, target.window_limit)
