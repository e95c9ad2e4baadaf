"""Convolutions: dense, depthwise and grouped, in one and two dimensions."""

import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from byoc.graph import Graph, Node
from byoc.operators import domain, product_rules, products
from byoc.operators.forms import Form, IntegerProduct, Kinds, QLinear, Written, integer
from byoc.operators.geometry import Geometry
from byoc.operators.nest import Tile
from byoc.operators.operator import Operator
from byoc.operators.products import ProductOperator, RequantiseConstants, requantisation
from byoc.operators.records import (
    ChannelConstants,
    CommandPart,
    Loops,
    Operand,
    Registers,
    Settings,
    Whole,
)
from byoc.operators.rules import Constraint, Finding, Requirement, finding, rule
from byoc.operators.sharding import AXES, Along, Sharding, is_image
from byoc.operators.window import (
    ATTRIBUTES,
    WindowOperator,
    check_window_fields,
    one_or_two_dimensional,
    read_window,
    two_dimensional,
)
from byoc.options import Target
from isa.arch import Arch, words_of
from isa.ops.convolution import MAPPING, ConvolutionWork, best_mapping
from isa.ops.products import COLUMNS, NARROW, WHOLE_KERNEL, gapless, pixel_bytes
from isa.ops.products import ArrayProduct as PackedProduct
from isa.ops.products import best_mapping as best_packed_mapping
from isa.packing import WeightShape
from isa.plugins import variant


@dataclass(frozen=True, eq=False)
class ConvRecord:
    """Data of one convolution node in the int8 domain.

    ``weights`` are int16 (OC, IC/group, KH, KW) minus their zero point. ``bias`` is int64 (OC,) and
    includes the correction for the input's zero point.
    """

    node: Node
    source: str
    result: str
    batch: int
    source_plane: tuple[int, int, int]
    result_plane: tuple[int, int, int]
    weights: NDArray[np.int8] | NDArray[np.int16]
    bias: NDArray[np.int64]
    input_zero_point: int
    requantise: RequantiseConstants | None
    group: int
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]

    @property
    def depthwise(self) -> bool:
        """True if every group has one input channel and there is more than one group."""
        return self.group == self.source_plane[0] > 1

    @property
    def grouped(self) -> bool:
        """True if there are several groups of several input channels each."""
        return self.group > 1 and not self.depthwise


# Constraints


@rule("a depthwise convolution runs on it or is emulated: use --isa v2 or --emulate-depthwise")
def depthwise_available(record: ConvRecord, target: Target) -> Finding | None:
    """Return a finding if no instruction can run a depthwise convolution, or None.

    A target that emulates depthwise convolutions needs no such instruction.
    """
    if not record.depthwise or target.emulate_depthwise:
        return None
    if {"OP_DEPTH_CONV", "OP_GROUP_CONV"} & target.instructions:
        return None
    return finding("OP_DEPTH_CONV is not in ISA {isa}", isa=target.isa)


@rule("with --grouped cpu, grouped convolutions stay on the CPU")
def grouped_wanted(record: ConvRecord, target: Target) -> Finding | None:
    """Return a finding if the user assigned a grouped convolution to the CPU, or None."""
    if not record.grouped or target.grouped != "cpu":
        return None
    return finding("it has {groups} groups", groups=record.group)


@rule("with --grouped native, grouped convolutions run on OP_GROUP_CONV: use --isa v3")
def grouped_available(record: ConvRecord, target: Target) -> Finding | None:
    """Return a finding if the ISA lacks a required OP_GROUP_CONV, or None.

    The user requires the instruction with ``Target.grouped`` set to "native".
    """
    if not record.grouped or target.grouped != "native" or "OP_GROUP_CONV" in target.instructions:
        return None
    return finding("OP_GROUP_CONV is not in ISA {isa}", isa=target.isa)


@rule(
    "accumulators fit int32: |bias| + 128 · Σ|weights| of every output channel is at most "
    "2147483647"
)
def accumulators_fit(record: ConvRecord, target: Target) -> Finding | None:
    """Return a finding if an accumulator of a convolution can overflow int32, or None."""
    return product_rules.too_wide(
        product_rules.largest(record.weights.reshape(len(record.weights), -1), record.bias)
    )


@rule(domain.FIXED)
def scales_in_int32(record: ConvRecord, target: Target) -> Finding | None:
    """Return a finding if requantising an accumulator overflows int32, or None."""
    weights = record.weights.reshape(len(record.weights), -1)
    return product_rules.check_accumulator(weights, record.bias, record.requantise, target)


@rule("sizes, kernel, strides, dilations and pads fit the instruction's fields")
def fits_fields(record: ConvRecord, target: Target) -> Finding | None:
    """Return a finding if a convolution's size exceeds its register field, or None."""
    window = (*record.weights.shape[2:], *record.strides, *record.dilations, *record.pads)
    found = check_window_fields((record.source_plane, record.result_plane), window, target)
    if found is None and _is_grouped_on(record, target):
        return domain.check_size("groups", record.group, target.group_limit)
    return found


def _is_grouped_on(record: ConvRecord, target: Target, mnemonic: str = "OP_GROUP_CONV") -> bool:
    """Return True if the grouped-convolution instruction ``mnemonic`` computes the convolution.

    A depthwise convolution is emulated or has its own instruction, which allows a limited number of
    filters per channel, and one input channel per group.
    """
    if record.depthwise:
        if products.has_repeated_input(products.int8_parts(record.weights), target):
            return True
        few = len(record.weights) < target.multiplier_limit * record.group
        own = "OP_DEPTH_CONV" in target.instructions and few
        return not target.emulate_depthwise and not own
    return record.grouped and target.grouped != "per-group" and mnemonic in target.instructions


# Operator


@dataclass(frozen=True, eq=False, kw_only=True)
class Convolution(ProductOperator, WindowOperator):
    """2-D convolution of one input (C, H, W) to one output (OC, OH, OW).

    Attributes:
        weights: int8 (OC, C / groups, KH, KW); output channel o reads the input channels of group
            ``o // (OC // groups)``.
        input_zero_point: value of the padding.
        emulated: a depthwise convolution on OP_CONV, one filter at a time.
        on_groups: computed by ``group_instruction``, which takes the number of groups from its
            register.
        shared: identity of the constants, if other operations have the same; None: identity of the
            arrays.
    """

    group_instruction: ClassVar[tuple[str, str]] = ("OP_GROUP_CONV", "EX_GROUPS")

    family: ClassVar[str] = "convolution"
    forms: ClassVar[tuple[Form, ...]] = (
        Form(
            "Conv",
            operands=3,
            weights="filters",
            attributes=(*ATTRIBUTES, "group"),
            activation=True,
            integer=(
                QLinear("QLinearConv", ((0, 1, 2), (3, 4, 5)), (6, 7), bias=8),
                IntegerProduct("ConvInteger"),
            ),
        ),
    )
    requirements: ClassVar[tuple[Requirement, ...]] = (
        one_or_two_dimensional,
        domain.variable_input,
        product_rules.eight_bit_input,
        domain.eight_bit_output,
        product_rules.per_tensor,
        domain.usable_scales,
        domain.not_empty,
        product_rules.constant_weights,
        *product_rules.WEIGHTS,
    )
    constraints: ClassVar[tuple[Constraint, ...]] = (
        depthwise_available,
        grouped_wanted,
        grouped_available,
        accumulators_fit,
        scales_in_int32,
        fits_fields,
    )

    kinds: ClassVar[Kinds] = {**WindowOperator.kinds, "group": integer(1)}

    input_zero_point: int
    groups: int = 1
    emulated: bool = False
    on_groups: bool = False
    shared: tuple[Hashable, ...] | None = None

    @classmethod
    def attributes(cls, written: Written) -> dict[str, Any] | str:
        """Return the window attributes and the number of groups of a convolution."""
        window = read_window(written)
        return (
            window
            if isinstance(window, str)
            else {**window, "group": int(written.node.attributes.get("group", 1))}
        )

    @classmethod
    def divide(cls, graph: Graph, node: Node, along: Along) -> Sharding | str:
        """Divide a convolution among machines by output channels, with their constants.

        A depthwise convolution is also divided by its input channels.
        """
        if along == "rows":
            return super().divide(graph, node, along)
        source, *constants = (graph.values[name] for name in node.inputs)
        result = graph.values[node.outputs[0]]
        groups = node.attributes.get("group", 1)
        axis = AXES[along]
        if not is_image(result) or any(value.constant is None for value in constants):
            return "it is no convolution of one image by constant weights"
        channels = result.shape[axis]
        if any(value.shape[:1] != (channels,) for value in constants):
            return "its constants are not by output channel"
        if groups != 1 and not groups == channels == source.shape[axis]:
            return f"it has {groups} groups of several channels"
        axes = (None if groups == 1 else axis, *[0] * len(constants))
        if groups == 1:
            return Sharding(axis, channels, axes)
        return Sharding(axis, channels, axes, attributes=lambda span: {"group": span[1] - span[0]})

    @classmethod
    def misfit(cls, graph: Graph, node: Node) -> str | None:
        """Return a message if zero points, window, or the shape of the weights do not match."""
        other = super().misfit(graph, node)
        if other is not None:
            return other
        source, result = (value.shape for value in graph.ends(node))
        filters = graph.values[node.inputs[1]].shape
        fits = len(filters) == len(source) and filters[2:] == node.attributes["kernel"]
        groups = node.attributes["group"]
        fits = fits and filters[1] * groups == source[1] and filters[0] == result[1]
        fits = fits and groups > 0 and filters[0] % groups == 0
        if fits:
            return None
        return (
            f"the weights of '{node.name}' have shape {filters} for input {source} and output "
            f"{result}"
        )

    @classmethod
    def parse(cls, graph: Graph, node: Node) -> ConvRecord:
        source, kernel, result = (
            graph.values[name] for name in (*node.inputs[:2], node.outputs[0])
        )
        assert kernel.constant is not None
        data = products.subtract_zeros(
            domain.to_stored_integers(kernel.constant), product_rules.zero_points(graph, node, 1)
        )
        filters = data.reshape(*data.shape[:2], *(1,) * (4 - data.ndim), *data.shape[2:])
        zero_point = int(product_rules.zero_points(graph, node, 0)[0])
        bias = graph.values[node.inputs[2]].constant if len(node.inputs) > 2 else None
        sums = filters.reshape(len(filters), -1).sum(axis=1, dtype=np.int64)
        strides, dilations, pads = two_dimensional(node)
        return ConvRecord(
            node=node,
            source=source.name,
            result=result.name,
            batch=source.shape[0],
            source_plane=domain.plane((1, *source.shape[1:])),
            result_plane=domain.plane((1, *result.shape[1:])),
            weights=filters,
            bias=products.fold_zero_point(bias, sums, zero_point),
            input_zero_point=zero_point,
            requantise=None
            if result.dtype == "int32"
            else requantisation(node, source, kernel, result, kernel.shape[0]),
            group=node.attributes["group"],
            strides=strides,
            dilations=dilations,
            pads=pads,
        )

    @classmethod
    def operations(cls, record: ConvRecord, target: Target) -> tuple[Operator, ...]:
        """Return one operation per image, or one per image and group.

        Groups are separate operations if no instruction computes several groups.
        """
        on_groups = _is_grouped_on(record, target, cls.group_instruction[0])
        parts = record.group if record.grouped and not on_groups else 1
        emulated = record.depthwise and target.emulate_depthwise and not on_groups
        choices = {"emulated": emulated, "on_groups": on_groups}
        first = tuple(cls._image(record, 0, parts, choices, target))
        if len(first) > parts:  # the sums of several products are separate values for each image
            images = (
                cls._image(record, image, parts, choices, target)
                for image in range(1, record.batch)
            )
            return (*first, *(operation for image in images for operation in image))
        sizes = int(np.prod(record.source_plane)), int(np.prod(record.result_plane))
        return tuple(
            _shift_operation(one, image * sizes[0], image * sizes[1])
            for image in range(record.batch)
            for one in first
        )

    @classmethod
    def _image(
        cls, record: ConvRecord, image: int, parts: int, choices: dict[str, Any], target: Target
    ) -> Iterator[Operator]:
        """Yield the operations of a convolution of one image, divided into ``parts``.

        Each part has one group, or all groups.
        """
        channels, *spatial = record.source_plane
        outputs, *result_spatial = record.result_plane
        source_shape = (channels // parts, *spatial)
        result_shape = (outputs // parts, *result_spatial)
        for part in range(parts):
            chosen = slice(part * outputs // parts, (part + 1) * outputs // parts)
            whole = cls(
                name=record.node.name,
                kind="DEPTH" if record.depthwise else "CONV",
                inputs=(
                    Operand(
                        record.source,
                        source_shape,
                        (image * parts + part) * int(np.prod(source_shape)),
                    ),
                ),
                output=Operand(
                    record.result,
                    result_shape,
                    (image * parts + part) * int(np.prod(result_shape)),
                    "int32" if record.requantise is None else "int8",
                ),
                onnx_nodes=record.node.onnx_nodes,
                weights=record.weights[chosen].astype(np.int8, copy=False),
                bias=record.bias[chosen].astype(np.int32),
                requantise=None
                if record.requantise is None
                else record.requantise.channels(chosen),
                input_zero_point=record.input_zero_point,
                strides=record.strides,
                dilations=record.dilations,
                pads=record.pads,
                groups=record.group // parts,
                **choices,
            )
            yield from products.split_weights(
                whole, products.int8_parts(record.weights[chosen]), target
            )

    @property
    def depthwise(self) -> bool:
        """True if every group has one input channel and there is more than one group."""
        return self.groups == self.inputs[0].shape[0] > 1

    @property
    def mnemonic(self) -> str:
        """Name of the instruction of a convolution: grouped, depthwise or dense."""
        if self.on_groups:
            return self.group_instruction[0]
        return "OP_DEPTH_CONV" if self.depthwise and not self.emulated else "OP_CONV"

    @property
    def window(self) -> tuple[int, int]:
        return self.weights.shape[2], self.weights.shape[3]

    def finer(self) -> tuple[Operator, ...]:
        """Split a convolution like a window operator, or into a sum over halves of its input.

        The sum is used for one group, and its halves are those of the input channels.
        """
        (source,) = self.inputs
        upright = super().finer()
        channels, *plane = source.shape
        if upright or self.groups > 1 or channels == 1:
            return upright
        lower = replace(source, shape=(channels // 2, *plane))
        upper = replace(
            source, shape=(channels - channels // 2, *plane), offset=source.offset + lower.elements
        )
        weights = np.split(self.weights, [channels // 2], axis=1)
        terms = zip((lower, upper), map(np.ascontiguousarray, weights), strict=True)
        return products.add_terms(
            self, [replace(self, inputs=(half,), weights=part) for half, part in terms]
        )

    def transpose_fields(self) -> dict[str, Any]:
        return {"weights": np.ascontiguousarray(self.weights.swapaxes(2, 3))}

    @property
    def channel_groups(self) -> int:
        return self.groups

    @property
    def loops(self) -> Loops:
        """Loops of a convolution; an emulated depthwise one computes one filter at a time."""
        return super().loops._replace(single=self.emulated)

    def settings(self, arch: Arch) -> Settings:
        """Return the requantisation, window and lane mapping settings of a convolution.

        The settings include the padding value. The mapping of idle lanes is included only if the
        instruction has a field for it.
        """
        registers, fields = super().settings(arch)
        own = {"EX_INPUT_ZERO_POINT": self.input_zero_point}
        instruction, _ = variant(arch.isa).by_mnemonic[self.mnemonic]
        if MAPPING in instruction.fields and not self.emulated:
            fields = {**fields, MAPPING.name: self._mapping(arch)}
        return Settings({**registers, **self.window_registers(), **own}, fields)

    def _mapping(self, arch: Arch) -> int:
        """Return the lane mapping that computes the convolution in the fewest cycles.

        Operands are in atoms if they have a layout.
        """
        if self.output.assigned is None:
            return best_mapping(self._work(), arch)
        image = self.inputs[0].layout
        if image.atom == pixel_bytes(self.groups, image.channels):
            return WHOLE_KERNEL
        if self.mnemonic == "OP_DEPTH_CONV":
            return 0
        nest = self.loops.nest
        atom = words_of(arch).atom
        shape = WeightShape(nest.groups, nest.group_outputs, nest.group_inputs, *self.window)
        last = nest.input_channels % atom if nest.groups == 1 else 0
        pictures = atom <= NARROW or 0 < last <= NARROW  # such tiles would be read as narrow input
        follow = gapless(nest.columns, nest.input_columns, *self.strides)
        product = PackedProduct(shape, nest.rows, nest.columns, self.strides[1], gapless=follow)
        return best_packed_mapping(product, COLUMNS if pictures else WHOLE_KERNEL, arch)

    def _work(self) -> ConvolutionWork:
        """Return the loop sizes of the whole convolution."""
        outputs, rows, columns = self.output.shape
        groups = outputs if self.mnemonic == "OP_DEPTH_CONV" else self.groups
        return ConvolutionWork(
            groups, self.weights.shape[1], outputs // groups, rows, columns, math.prod(self.window)
        )

    @classmethod
    def tile_registers(cls, geometry: Geometry, tile: Tile) -> Registers:
        """Return the registers for a convolution's window and its number of groups per command.

        The number of groups is included only if the instruction has a register for it. Within a
        group the number of groups is 1.
        """
        registers = super().tile_registers(geometry, tile)
        mnemonic, register = cls.group_instruction
        if geometry.instruction is None or geometry.instruction.mnemonic != mnemonic:
            return registers
        return {
            **registers,
            register: max(tile.output.channels.size // geometry.nest.group_outputs, 1),
        }

    def commands(
        self, geometry: Geometry, tile: Tile, registers: Registers, whole: Whole
    ) -> tuple[CommandPart, ...]:
        """Return one command, or one per output channel of an emulated depthwise convolution.

        Each command of the emulation reads one input channel.
        """
        if not self.emulated:
            return (CommandPart(registers, {}),)
        output = tile.output
        source = tile.input
        input_plane = registers["EX_INPUT_PLANE"] or source.rows.size * source.columns.size
        output_plane = (
            registers["EX_OUTPUT_PLANE"]
            or output.rows.size * output.columns.size * geometry.output_bytes
        )
        ones = ("EX_INPUT_CHANNELS", "EX_OUTPUT_CHANNELS")
        single = {**registers, **dict.fromkeys(ones, 1), "EX_INPUT_PLANE": 0, "EX_OUTPUT_PLANE": 0}
        group = output.channels.size // source.channels.size
        return tuple(
            CommandPart(
                single,
                {
                    "EX_INPUT_ADDRESS": channel // group * input_plane,
                    "EX_OPERAND_ADDRESS": channel * geometry.weight_bytes,
                    "EX_CHANNEL_ADDRESS": channel * geometry.record_bytes,
                    "EX_OUTPUT_ADDRESS": channel * output_plane,
                },
            )
            for channel in range(output.channels.size)
        )

    def constants(self) -> ChannelConstants:
        scale = None if self.requantise is None else self.requantise.scales
        # Images of a batch share them. Parts of other shapes may map weights to other lanes.
        same = self.shared or (id(self.bias), id(scale), id(self.weights), self.output.shape)
        return ChannelConstants(self.bias, self.channel_scales, self.weights, shared=same)


def _shift_operation(operation: Operator, source: int, result: int) -> Operator:
    """Return an operation with its operands and result moved by numbers of elements.

    Operands are moved by ``source`` elements and the result by ``result`` elements. The constants
    stay the same.
    """
    inputs = tuple(replace(operand, offset=operand.offset + source) for operand in operation.inputs)
    return replace(
        operation,
        inputs=inputs,
        output=replace(operation.output, offset=operation.output.offset + result),
    )
