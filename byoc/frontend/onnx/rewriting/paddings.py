"""Rewrite rules that turn a Pad into padding of the operator after it; exact, for every model."""

from collections.abc import Sequence

import numpy as np
from onnx import NodeProto

from byoc.frontend.onnx.rewriting.law import GraphView, Law
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE
from byoc.runtimes.protobuf import attributes, copy_node, set_attributes


class PadIntoConv(Law):
    """`Conv(Pad(x))` = `Conv'(x)`: turn a Pad with zeros into padding of the Conv.

    The Pad is around rows and columns. Holds in quantised models too if the Pad's result has the
    quantisation of its operand. The Pad must have no other consumers.
    """

    name = "pad-into-conv"
    roots = frozenset({"Conv"})
    measure = "paddings"

    def match(self, graph: GraphView, node: NodeProto) -> tuple[str, list[int]] | str | None:
        """Return a Conv's operand without its Pad, and the sum of both paddings."""
        reader = node
        pad = graph.maker(node.input[0], "Pad", DEQUANTIZE)
        if pad is not None and pad.op_type == DEQUANTIZE:
            reader, pad = _find_requantisation(graph, pad, node)
        if pad is None:
            return None
        margins = _margins(graph, pad)
        if margins is None:
            return "it pads with other numbers than 0, or other axes"
        if not graph.alone(pad.output[0], reader):
            return "others read what is padded"
        options = attributes(node)
        if options.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            return "the Conv finds its padding itself"
        own = options.get("pads", [0] * len(margins))
        return pad.input[0], [a + b for a, b in zip(margins, own, strict=False)]

    def apply(
        self, graph: GraphView, node: NodeProto, found: tuple[str, list[int]]
    ) -> Sequence[NodeProto]:
        """Return a Conv with the padding of the removed Pad added to its own."""
        conv = copy_node(node)
        set_attributes(conv, "auto_pad", pads=found[1])
        conv.input[0] = found[0]
        return [conv]


def _find_requantisation(
    graph: GraphView, dequantize: NodeProto, node: NodeProto
) -> tuple[NodeProto, NodeProto | None]:
    """Return the QuantizeLinear before ``dequantize``, and the Pad before the QuantizeLinear.

    Only ``node`` reads the result of ``dequantize``. The Pad is None if its operand has another
    quantisation or a tensor between has other consumers.
    """
    quantize = graph.maker(dequantize.input[0], QUANTIZE)
    pad = None if quantize is None else graph.maker(quantize.input[0], "Pad")
    source = None if pad is None else graph.maker(pad.input[0], DEQUANTIZE)
    if quantize is None or source is None or not graph.alone(dequantize.output[0], node):
        return dequantize, None
    scales = [[*each.input[1:3]] for each in (source, quantize, dequantize)]
    if not graph.alone(quantize.output[0], dequantize) or min(map(len, scales)) < 2:
        return quantize, None  # without a zero point, the element type may differ
    alike = all(
        graph.same_numbers(first, other)
        for first, *others in zip(*scales, strict=True)
        for other in others
    )
    return quantize, pad if alike else None


class PadIntoPool(PadIntoConv):
    """`MaxPool(Pad(x))` = `MaxPool'(x)`: turn a Pad with -∞ into padding of the MaxPool.

    The Pad is around rows and columns, and has no other consumers. The padding is smaller than the
    window.
    """

    name = "pad-into-pool"
    roots = frozenset({"MaxPool"})

    def match(self, graph: GraphView, node: NodeProto) -> tuple[str, list[int]] | str | None:
        """Return a MaxPool's operand without its Pad, and the sum of both paddings."""
        pad = graph.maker(node.input[0], "Pad")
        margins = None if pad is None else _margins(graph, pad, -np.inf)
        if pad is None or margins is None:
            return None
        options = attributes(node)
        if not graph.alone(pad.output[0], node) or len(node.output) > 1 or options.get("ceil_mode"):
            return "others read what is padded, or the result is rounded up or has indices"
        if options.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            return "the MaxPool finds its padding itself"
        own = options.get("pads", [0] * len(margins))
        pads = [sum(pair) for pair in zip(margins, own, strict=True)]
        if any(pad >= size for pad, size in zip(pads, options["kernel_shape"] * 2, strict=True)):
            return "a window may see padding alone"
        return pad.input[0], pads


def _margins(graph: GraphView, pad: NodeProto, filling: float = 0.0) -> list[int] | None:
    """Return the spatial padding of a Pad with ``filling``, begins of all axes before ends.

    Returns None for Pads with other values or on other axes.
    """
    names = [*pad.input[1:], "", "", ""][:3]
    if attributes(pad).get("mode", b"constant") != b"constant" or names[0] not in graph.constants:
        return None
    if names[1] and names[1] not in graph.constants:
        return None
    value = graph.constants[names[1]].reshape(-1)[0] if names[1] else 0.0
    if names[2] or value != filling:
        return None
    margins = [int(size) for size in graph.constants[names[0]]]
    half = len(margins) // 2
    if (
        min(margins, default=-1) < 0
        or len(margins) < 6
        or any((*margins[:2], *margins[half : half + 2]))
    ):
        return None
    return [*margins[2:half], *margins[half + 2 :]]
