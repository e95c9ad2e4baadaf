"""Rewrite Einsum as sums, element-wise products and matrix products of two operands at a time."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from onnx import NodeProto

from byoc.frontend.onnx.rewriting.law import GraphView, NodeWriter, write_operators
from byoc.operators.onnx_view import DEQUANTIZE, QUANTIZE

_ELLIPSIS = "..."


@dataclass(frozen=True)
class _Term:
    """A tensor and the letters of its axes."""

    name: str
    letters: str


@write_operators("Einsum")
def write_out_einsums(graph: GraphView, node: NodeProto) -> Sequence[NodeProto] | None:
    """Rewrite an Einsum as elementary operators.

    Returns None for repeated letters in an operand or unknown shapes. In a quantised model the
    operands and result must be quantised and the Einsum must be one sum or product, because the
    model has no scales for intermediate tensors.
    """
    shapes = [graph.shapes.get(name) for name in node.input]
    if any(shape is None or 0 in shape for shape in shapes) or (
        graph.quantises and not _is_quantised(graph, node)
    ):
        return None
    writer = _Contraction(graph, node)
    parsed = _parse(writer.options["equation"].decode(), [len(shape or ()) for shape in shapes])
    if parsed is None:
        return None
    operands, result = parsed
    if any(len(set(letters)) != len(letters) for letters in (*operands, result)):
        return None
    writer.write(
        [_Term(name, letters) for name, letters in zip(node.input, operands, strict=True)], result
    )
    products = sum(made.op_type in ("ReduceSum", "Mul", "MatMul") for made in writer.nodes)
    return None if graph.quantises and products > 1 else writer.finish()


def _is_quantised(graph: GraphView, node: NodeProto) -> bool:
    """Return True if an Einsum reads only dequantised operands and its result is quantised."""
    (result,) = node.output
    readers = list(graph.readers(result))
    sources = [graph.maker(name, DEQUANTIZE) for name in node.input]
    return (
        None not in sources
        and not graph.is_shown(result)
        and [reader.op_type for reader in readers] == [QUANTIZE]
    )


def _parse(equation: str, ranks: Sequence[int]) -> tuple[list[str], str] | None:
    """Return the axis letters of an Einsum's operands and result.

    Returns None if the equation does not fit the operands.
    The axes of an ellipsis get letters of their own, counted from the last axis.
    """
    left, arrow, result = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    missing = [
        rank - len(text.replace(_ELLIPSIS, "")) for text, rank in zip(operands, ranks, strict=False)
    ]
    if len(operands) != len(ranks) or any(
        count < 0 or (count and _ELLIPSIS not in text)
        for text, count in zip(operands, missing, strict=True)
    ):
        return None
    others = "".join(chr(0x100 + number) for number in reversed(range(max(missing))))
    written_out = [
        text.replace(_ELLIPSIS, others[len(others) - count :])
        for text, count in zip(operands, missing, strict=True)
    ]
    if arrow:
        return written_out, result.replace(_ELLIPSIS, others)
    counted = left.replace(",", "").replace(_ELLIPSIS, "")
    return written_out, others + "".join(
        sorted(letter for letter in set(counted) if counted.count(letter) == 1)
    )


class _Contraction(NodeWriter):
    sizes: Mapping[str, int]

    def write(self, terms: Sequence[_Term], result: str) -> None:
        """Multiply an Einsum's operands from left to right and order the result's axes."""
        pairs = [
            pair
            for term in terms
            for pair in zip(term.letters, self.graph.shapes[term.name], strict=True)
        ]
        self.sizes = {
            letter: max(size for other, size in pairs if other == letter) for letter, _ in pairs
        }
        first, *others = [self._drop_ones(term) for term in terms]
        for number, term in enumerate(others):
            needed = result + "".join(later.letters for later in others[number + 1 :])
            first = self._multiply(
                self._sum(first, needed + term.letters),
                self._sum(term, needed + first.letters),
                needed,
            )
        first = self._sum(first, result)
        missing = [letter for letter in result if letter not in first.letters]
        ordered = self._transpose(first, [letter for letter in result if letter in first.letters])
        if missing:  # every operand has one element on these axes
            ordered = self._reshape(ordered, [self.sizes[letter] for letter in result])
        if not self.nodes:
            self.add("Identity", ordered)

    def _drop_ones(self, term: _Term) -> _Term:
        """Remove the size-1 axes of an Einsum's term that are broadcast to a larger size."""
        kept = [
            letter
            for letter in term.letters
            if self.sizes[letter] == 1 or self._shape(term)[letter] != 1
        ]
        if len(kept) == len(term.letters):
            return term
        return _Term(
            self._reshape(term.name, [self.sizes[letter] for letter in kept]), "".join(kept)
        )

    def _shape(self, term: _Term) -> Mapping[str, int]:
        return dict(zip(term.letters, self.graph.shapes[term.name], strict=True))

    def _sum(self, term: _Term, needed: Collection[str]) -> _Term:
        """Return a term of an Einsum, summed along the axes that are not ``needed``."""
        axes = [axis for axis, letter in enumerate(term.letters) if letter not in needed]
        if not axes:
            return term
        total = self.add("ReduceSum", term.name, self.constant(axes, np.int64), keepdims=0)
        return _Term(total, "".join(letter for letter in term.letters if letter in needed))

    def _multiply(self, first: _Term, second: _Term, needed: str) -> _Term:
        """Return the product of two terms of an Einsum, summed along axes not ``needed``."""
        shared = [letter for letter in first.letters if letter in second.letters]
        inner = [letter for letter in shared if letter not in needed]
        left = [letter for letter in first.letters if letter not in shared]
        right = [letter for letter in second.letters if letter not in shared]
        if not inner:
            order = sorted({*first.letters, *second.letters}, key=needed.index)
            return _Term(
                self.add("Mul", *(self._spread(term, order) for term in (first, second))),
                "".join(order),
            )
        batch = [letter for letter in shared if letter in needed]
        lead = [self.sizes[letter] for letter in batch]
        rows, depth, columns = (
            prod(self.sizes[letter] for letter in letters) for letters in (left, inner, right)
        )
        a = self._reshape(self._transpose(first, [*batch, *left, *inner]), [*lead, rows, depth])
        b = self._reshape(
            self._transpose(second, [*batch, *inner, *right]), [*lead, depth, columns]
        )
        product = self.add("MatMul", a, b)
        self.graph.shapes[product] = (*lead, rows, columns)
        letters = [*batch, *left, *right]
        return _Term(
            self._reshape(product, [self.sizes[letter] for letter in letters]), "".join(letters)
        )

    def _spread(self, term: _Term, order: Sequence[str]) -> str:
        """Give an Einsum's term the axes ``order``, with size 1 for letters that it lacks."""
        own = self._transpose(term, [letter for letter in order if letter in term.letters])
        return self._reshape(
            own, [self.sizes[letter] if letter in term.letters else 1 for letter in order]
        )

    def _transpose(self, term: _Term, order: Sequence[str]) -> str:
        if list(order) == list(term.letters):
            return term.name
        made = self.add(
            "Transpose", term.name, perm=[term.letters.index(letter) for letter in order]
        )
        self.graph.shapes[made] = tuple(self.sizes[letter] for letter in order)
        return made

    def _reshape(self, name: str, shape: Sequence[int]) -> str:
        if self.graph.shapes.get(name) == tuple(shape):
            return name
        made = self.add("Reshape", name, self.constant(shape, np.int64))
        self.graph.shapes[made] = tuple(shape)
        return made
