"""Pooling: maximum, average and global."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators import domain
from byoc.operators.elementwise import SINGLE
from byoc.operators.forms import Form, Kinds, QLinear, Written, flag
from byoc.operators.onnx_view import OnnxNode
from byoc.operators.operator import Operator
from byoc.operators.records import Loops, Operand, Registers, Settings, Traits
from byoc.operators.reduction import Reduction
from byoc.operators.rules import Constraint, Finding, Requirement, finding, rule
from byoc.operators.sharding import Along, Sharding, element_by_element
from byoc.operators.window import (
    ATTRIBUTES,
    WindowOperator,
    check_window_fields,
    one_or_two_dimensional,
    read_window,
    two_dimensional,
    uncut_input,
)
from byoc.options import Target
from isa import numerics
from isa.arch import Arch
from isa.numerics import float32_bits

Mode = Literal["max", "average", "global_average"]
_MODES: dict[Mode, int] = {"max": 0, "average": 1, "global_average": 2}


@rule("sizes, kernel, strides, dilations and pads fit the instruction's fields")
def fits_fields(record: PoolOperator, target: Target) -> Finding | None:
    """Return a finding if a size of a pool exceeds its register field, or None."""
    window = (*record.kernel, *record.strides, *record.dilations, *record.pads)
    return check_window_fields((record.inputs[0].shape, record.output.shape), window, target)


@rule("every window covers at least one element of the input")
def windows_meet_input(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a pooling window covers only padding, or None."""
    if "pads" not in node.attributes:
        return None
    spatial, results = (value.shape[2:] for value in graph.ends(node))
    attributes = node.attributes
    for axis, (size, count) in enumerate(zip(spatial, results, strict=True)):
        reach = (attributes["kernel"][axis] - 1) * attributes["dilations"][axis]
        first = -attributes["pads"][axis]
        last = (count - 1) * attributes["strides"][axis] - attributes["pads"][axis]
        if first + reach < 0 or last >= size:
            values = {"axis": axis, "pads": attributes["pads"]}
            return finding(
                "a window along spatial axis {axis} lies in the padding alone (pads {pads})",
                **values,
            )
    return None


@rule("average pooling has no dilation")
def undilated_average(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if an average pool has a dilation above 1, or None."""
    dilations = node.attributes.get("dilations", (1,))
    return finding("dilations are {dilations}", dilations=dilations) if max(dilations) > 1 else None


@rule("average pooling with count_include_pad has no ceil_mode")
def counted_without_rounding_up(graph: Graph, node: Node) -> Finding | None:
    """Return a finding if a pool has ``ceil_mode`` and counts padding, or None.

    ONNX Runtime counts padding differently in windows that ``ceil_mode`` adds.
    """
    attributes = node.attributes
    rounded = attributes.get("ceil_mode") and attributes.get("count_include_pad")
    return finding("ceil_mode is {ceil_mode}", ceil_mode=1) if rounded else None


_COMMON: tuple[Requirement, ...] = (one_or_two_dimensional, uncut_input, *SINGLE)


@dataclass(frozen=True, eq=False, kw_only=True)
class PoolOperator(WindowOperator):
    """Pooling (C, H, W) → (C, OH, OW).

    The batch is folded into the channels.
    """

    arity: ClassVar[tuple[int, int]] = (1, 1)
    constraints: ClassVar[tuple[Constraint, ...]] = (fits_fields,)
    traits: ClassVar[Traits] = WindowOperator.traits._replace(mnemonic="OP_POOL")

    mode: Mode
    kernel: tuple[int, int]

    @classmethod
    def must_stay_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Return True for pools of volumes that no pass has converted to pools of planes."""
        return len(node.attributes.get("kernel_shape", ())) > 2

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any] | str:
        """Return the attributes of the pooling window, or why they cannot be read.

        They are empty for a pool of the whole plane.
        """
        return read_window(written, cuts=True)

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        source, result = (value.shape for value in graph.ends(node))
        planes = (
            None
            if source[:2] == result[:2]
            else f"'{node.name}' pools shape {source} to shape {result}"
        )
        return super().misfit(graph, node) or planes

    @classmethod
    def divide(cls, graph: Graph, node: Node, along: Along) -> Sharding | str:
        """Divide a pool among machines by channels, or by rows with the halo of the window."""
        if along == "rows":
            return super().divide(graph, node, along)
        return element_by_element(graph, node, along, planes=True)

    @classmethod
    def make_pool(cls, graph: Graph, node: Node, mode: Mode, **numbers: Any) -> Self:
        """Return the operation of a pooling node.

        ``numbers`` are the keyword arguments of its mode.
        """
        source, result = graph.ends(node)
        plane = domain.plane(source.shape)
        strides = (1, 1)
        dilations = (1, 1)
        pads = (0, 0, 0, 0)
        if "kernel" in node.attributes:
            strides, dilations, pads = two_dimensional(node)
        return cls(
            name=node.name,
            kind="POOL",
            inputs=(Operand.from_value(source, plane),),
            output=Operand.from_value(result, domain.plane(result.shape)),
            onnx_nodes=node.onnx_nodes,
            mode=mode,
            kernel=kernel_of(graph, node),
            strides=strides,
            dilations=dilations,
            pads=pads,
            **numbers,
        )

    @property
    def loops(self) -> Loops:
        """Loops of a pool's window over independent channels."""
        return super().loops._replace(images=True)

    @property
    def window(self) -> tuple[int, int]:
        """Number of rows and columns of the pooling window.

        For a global average, the kernel is the whole plane.
        """
        height, width = self.inputs[0].shape[1:]
        return (height, width) if self.mode == "global_average" else self.kernel

    def transpose_fields(self) -> dict[str, Any]:
        return {"kernel": self.kernel[::-1]}

    @property
    def channel_groups(self) -> int:
        return self.inputs[0].shape[0]

    def settings(self, arch: Arch) -> Settings:
        """Return a pool's registers for the window and the mode, and its mode fields."""
        registers = {**self.window_registers(), **self.number_registers(arch)}
        return Settings(
            registers,
            {"mode": _MODES[self.mode_of(arch)], "count_include_pad": int(self.counts_padding)},
        )

    def mode_of(self, arch: Arch) -> Mode:
        return self.mode

    @property
    def counts_padding(self) -> bool:
        return False

    def number_registers(self, arch: Arch) -> Registers:
        """Return a pool's clamp registers and the other registers of its mode."""
        raise NotImplementedError


def kernel_of(graph: Graph, node: Node) -> tuple[int, int]:
    """Return the numbers of rows and columns of a pooling node's window.

    Without a kernel, the window is the whole plane.
    """
    if "kernel" not in node.attributes:
        return domain.plane(graph.values[node.inputs[0]].shape)[1:]
    window = node.attributes["kernel"]
    return (1, window[0]) if len(window) == 1 else (window[0], window[1])


@dataclass(frozen=True, eq=False, kw_only=True)
class MaxPool(PoolOperator):
    """Maximum pooling, in which padding never becomes the maximum."""

    family: ClassVar[str] = "max_pooling"
    forms: ClassVar[tuple[Form, ...]] = (
        Form("MaxPool", attributes=ATTRIBUTES, plain=True, ranges="first"),
        Form("GlobalMaxPool", plain=True, ranges="first"),
    )
    requirements: ClassVar[tuple[Requirement, ...]] = (
        *_COMMON,
        domain.moves_integers,
        windows_meet_input,
    )

    mode: Mode = "max"

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> MaxPool:
        return cls.make_pool(graph, node, "max")

    def finer(self) -> tuple[Operator, ...]:
        """Return the max pool on reshaped planes, or as maxima along rows and then columns."""
        upright, (source,), result = super().finer(), self.inputs, self.output
        if upright or 1 in self.window:
            return upright
        maxima = Operand(
            f"{result.value}@{result.offset}:rows", (*source.shape[:2], result.shape[2])
        )
        top, left, bottom, right = self.pads
        (down, across), (far_down, far_across), (high, wide) = (
            self.strides,
            self.dilations,
            self.kernel,
        )
        rows = replace(
            self, output=maxima, kernel=(1, wide), strides=(1, across), dilations=(1, far_across),
            pads=(0, left, 0, right),
        )  # fmt: skip
        columns = replace(
            self, inputs=(maxima,), kernel=(high, 1), strides=(down, 1), dilations=(far_down, 1),
            pads=(top, 0, bottom, 0),
        )  # fmt: skip
        return rows, columns

    def number_registers(self, arch: Arch) -> Registers:
        """Return clamp registers of the full range, because a maximum can have any value."""
        return {"EX_CLAMP_LOW": -128, "EX_CLAMP_HIGH": 127}


@dataclass(frozen=True, eq=False, kw_only=True)
class AveragePool(PoolOperator):
    """Average pooling over windows or whole planes.

    ``global_average`` reduces each plane to one element. ``named``: the model specifies a window,
    rather than the whole plane.

    It follows ONNX Runtime's rules on original values: ``x + offset``, with zero points
    ``input_zero_point`` and ``output_zero_point`` of the ONNX element type; ``offset`` is 128 for
    tensors that are uint8 in the model, else 0.
    """

    family: ClassVar[str] = "average_pooling"
    forms: ClassVar[tuple[Form, ...]] = (
        Form(
            "AveragePool",
            attributes=(*ATTRIBUTES, "count_include_pad", "ceil_mode"),
            activation=True,
            ranges="first",
            integer=(QLinear("QLinearAveragePool", ((0, 1, 2),), (3, 4)),),
        ),
        Form(
            "GlobalAveragePool",
            activation=True,
            # Steps finer than 1/255 of the operand's range carry no information, and ONNX Runtime
            # refuses scales that differ by 256 or more
            # (onnxruntime/contrib_ops/cpu/quantization/qlinear_global_average_pool.cc).
            range_ratio=255,
            integer=(QLinear("QLinearGlobalAveragePool", ((0, 1, 2),), (3, 4)),),
        ),
    )
    requirements: ClassVar[tuple[Requirement, ...]] = (
        *_COMMON,
        domain.near_scales,
        windows_meet_input,
        undilated_average,
        counted_without_rounding_up,
    )
    kinds: ClassVar[Kinds] = {**WindowOperator.kinds, "count_include_pad": flag, "ceil_mode": flag}

    named: bool = True
    count_include_pad: bool = False
    input_scale: float = 1.0
    output_scale: float = 1.0
    input_zero_point: int = 0
    output_zero_point: int = 0
    offset: int = 0
    low: int = -128
    high: int = 127

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any] | str:
        """Return an average pool's window, how its padding counts, and its rounding mode.

        ``ceil_mode`` is set if it added windows, which reach beyond the padding of the model.
        """
        source = written.node.attributes
        window = read_window(written, cuts=True)
        if not window or isinstance(window, str):
            return window
        beyond = sum(window["pads"]) > sum(source.get("pads", ()))
        return {
            **window,
            "count_include_pad": bool(source.get("count_include_pad", 0)),
            "ceil_mode": bool(source.get("ceil_mode", 0)) and beyond,
        }

    @classmethod
    def must_stay_float(cls, node: OnnxNode, constants: Mapping[str, NDArray[Any]]) -> bool:
        """Return whether an average pool must stay in float.

        This includes dilated pools, for which ONNX Runtime has no integer operator.
        """
        dilated = any(step != 1 for step in node.attributes.get("dilations", ()))
        return dilated or super().must_stay_float(node, constants)

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> AveragePool:
        source, result = graph.ends(node)
        before = domain.affine(source)
        after = domain.affine(result)
        low, high = domain.clamp(node, after)
        # ONNX Runtime averages a window of the whole plane by its GlobalAveragePool rule, which
        # breaks ties differently.
        whole = kernel_of(graph, node) == domain.plane(source.shape)[1:] and not any(
            node.attributes.get("pads", ())
        )
        return cls.make_pool(
            graph,
            node,
            "global_average" if whole else "average",
            named="kernel" in node.attributes,
            count_include_pad=node.attributes.get("count_include_pad", False),
            input_scale=float(before.scale),
            output_scale=float(after.scale),
            input_zero_point=before.zero_point,
            output_zero_point=after.zero_point,
            offset=before.offset,
            low=low,
            high=high,
        )

    def finer(self) -> tuple[Operator, ...]:
        """Return the average pool on reshaped planes, or as reductions of single planes.

        A tile reads one plane after the other.
        """
        upright, (source,), result = super().finer(), self.inputs, self.output
        if upright or self.named or self.mode != "global_average":
            return upright
        planes, count = source.shape[0], source.shape[1] * source.shape[2]
        rows = Reduction(
            name=self.name,
            kind=self.kind,
            onnx_nodes=self.onnx_nodes,
            inputs=(Operand(source.value, (planes, count), source.offset),),
            output=Operand(result.value, (planes, 1), result.offset),
            mode="mean",
            count=count,
            scales=(self.input_scale, self.output_scale),
            zero_points=(self.input_zero_point - self.offset, self.output_zero_point - self.offset),
            low=self.low,
            high=self.high,
        )
        return (rows,)

    def mode_of(self, arch: Arch) -> Mode:
        """Return the pooling mode for a machine's numerics.

        With numerics ``fixed`` a window named by the model is TensorFlow Lite's average pool.
        """
        return "average" if self.named and arch.numerics == "fixed" else self.mode

    @property
    def counts_padding(self) -> bool:
        return self.count_include_pad

    def number_registers(self, arch: Arch) -> Registers:
        """Return an average pool's registers for the clamp, zero points and scales.

        Scales are float32 bits, or multiplier and shift with numerics ``fixed``.
        """
        # Only ONNX Runtime's window average uses the model's zero points; the others use the stored
        # ones.
        original = self.mode == "average" and arch.numerics == "onnxruntime"
        moved = 0 if original else self.offset
        registers = {
            "EX_CLAMP_LOW": self.low,
            "EX_CLAMP_HIGH": self.high,
            "EX_INPUT_ZERO_POINT": self.input_zero_point - moved,
            "EX_OUTPUT_ZERO_POINT": self.output_zero_point - moved,
            "EX_OFFSET": self.offset - moved,
        }
        if arch.numerics == "fixed":
            ratio = float(numerics.real_multiplier(self.input_scale, 1.0, self.output_scale))
            registers["EX_SCALE_A"], registers["EX_SHIFT_A"] = numerics.quantise_multiplier(ratio)
        elif self.mode == "average":
            registers["EX_SCALE_A"] = float32_bits(self.input_scale)
            registers["EX_SCALE_Y"] = float32_bits(self.output_scale)
        else:
            height, width = self.window
            scale = numerics.global_average_scale(
                self.input_scale, self.output_scale, height * width
            )
            registers["EX_SCALE_A"] = float32_bits(scale)
        return registers
