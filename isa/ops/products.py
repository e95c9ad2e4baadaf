"""Convolutions and matrix products in banked memory: array steps, cycles and words.

The module states how the array processes the weights of a convolution or matrix product.

The formulas are those of docs/machine.md, section 12, with its letters: a, b, c are the sizes of
the array, A the bytes of an atom, W those of a word, P the accumulators.
"""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isa.arch import Arch, BankedMemory, words_of
from isa.instruction import ceil_div
from isa.packing import (
    Block,
    Bytes,
    WeightShape,
    block_places,
    compute_transposed_places,
    divide_size,
    write_blocks,
)

NARROW = 4
"""Most channels of an input that is stored in atoms of its own, such as an image."""
TAPS = 1
COLUMNS = 2
WHOLE_KERNEL = 3
"""Values of the field ``mapping``.

1: the array computes the taps of a kernel row in parallel. 2: also several output columns. 3: all
taps of the kernel, and several output columns.
"""


class ArrayProduct(NamedTuple):
    """A convolution or matrix product as the array sees it.

    Attributes: weights: groups, output and input channels per group, and kernel. rows: rows of
        results. columns: columns of results. stride: input columns from one result to the next.
        taps: the array computes the taps of a kernel row in parallel. apart: parts of the array's
        columns have their own activations, for groups and for output columns. whole: kernel rows if
        the array computes all taps in parallel (one row of ``weights``); else 0. narrow: bytes of
        an atom of the input if it is an image (:func:`pixel_bytes`), otherwise 0. computed: the
        weights are a tensor in atoms whose channels are the "outputs" or "inputs"; "" for constant
        weights. gapless: the input of each row of results ends where that of the next row begins,
        so the stream of activations continues.
    """

    weights: WeightShape
    rows: int
    columns: int
    stride: int = 1
    taps: bool = False
    apart: bool = False
    whole: int = 0
    narrow: int = 0
    computed: Literal["", "outputs", "inputs"] = ""
    gapless: bool = False

    @property
    def outputs(self) -> int:
        """Number of results of the product."""
        return self.weights.groups * self.weights.outputs * self.rows * self.columns

    @property
    def channels(self) -> int:
        """Number of output channels of the product."""
        return self.weights.groups * self.weights.outputs

    @property
    def depth(self) -> int:
        """Number of products that the array adds in parallel: input channels of a group.

        With ``taps`` times the kernel's columns.
        """
        return self.weights.inputs * (self.weights.columns if self.taps else 1)


def gapless(columns: int, read: int, stride: int, across: int) -> bool:
    """Return True if the inputs of consecutive result rows are adjacent.

    The input of a row then ends where that of the next row begins.

    Args:
        columns: results per row.
        read: input columns.
        stride: input rows from one row of results to the next.
        across: input columns from one result to the next.
    """
    return stride * read == columns * across


def use_mapping(product: ArrayProduct, mapping: int) -> ArrayProduct:
    """Return a product as the array computes it under one value of the field ``mapping``."""
    shape = product.weights
    found = product._replace(taps=mapping >= TAPS, apart=mapping >= COLUMNS)
    if mapping != WHOLE_KERNEL:
        return found
    beside = shape._replace(rows=1, columns=shape.rows * shape.columns)
    return found._replace(
        weights=beside, whole=shape.rows, narrow=pixel_bytes(shape.groups, shape.inputs)
    )


def pixel_bytes(groups: int, inputs: int) -> int:
    """Return the bytes of one stored pixel of an image that a convolution reads.

    It is an atom of a :data:`WHOLE_KERNEL` convolution's image.

    Return 0 if the input is not an image. An image has one group and at most :data:`NARROW`
    channels, in atoms of 1, 2 or 4 bytes.
    """
    return 1 << (inputs - 1).bit_length() if groups == 1 and inputs <= NARROW else 0


def _parts(size: int, step: int) -> Iterator[tuple[int, int]]:
    """Divide a size into parts of at most ``step``; return (number of parts, size of a part) pairs.

    Full parts come first, then the remainder.
    """
    return ((number, piece) for _, number, piece in divide_size(size, step))


def product_block(product: ArrayProduct, arch: Arch) -> Block:
    """Return the block of a product's weights that the array stores at a time.

    They are those of min(G, ⌊a/I⌋, ⌊b/O⌋) groups, but at least of one. Each group has up to b
    output by a input channels. I is the number of input channels of a group; with ``taps`` it is
    that of a kernel row. Without ``apart``, groups share the array only if their input channels are
    in one atom; with ``apart`` (columns with their own activations) I does not limit the number of
    groups.
    """
    array = arch.pe
    shape = product.weights
    together = min(shape.groups, array.oc // max(shape.outputs, 1) or 1)
    if not product.apart:
        together = (
            1
            if words_of(arch).atom % shape.inputs
            else min(together, array.ic // product.depth or 1)
        )
    return Block(together, array.oc, array.ic, product.taps)


def _count_columns_per_step(product: ArrayProduct, block: Block, arch: Arch) -> int:
    """Return the most output columns that the array can compute per step: c.

    With ``apart``, min(⌊b / (g·O)⌋, ⌈OW/c⌉) times as many.
    """
    if not product.apart:
        return arch.pe.ow
    parts = arch.pe.oc // max(block.groups * product.weights.outputs, 1)
    return arch.pe.ow * max(1, min(parts, ceil_div(product.columns, arch.pe.ow)))


class _Reach(NamedTuple):
    """Activations that one array step reads: memory words of one stream, and bytes of one stream.

    A stream is the activations of one atom, or of one pair of an atom and a kernel row.
    """

    each: int
    nbytes: int


def _reach(product: ArrayProduct, columns: int, arch: Arch) -> _Reach:
    """Return the activations that one array step of ``columns`` output columns reads.

    With e columns a stream has ((e - 1)·SW + 1)·A bytes, with ``taps`` e·SW·A.
    """
    words = words_of(arch)
    positions = columns * product.stride if product.taps else (columns - 1) * product.stride + 1
    nbytes = positions * _atom(product, words)
    return _Reach(words.count(nbytes), nbytes)


class _Streams(NamedTuple):
    """``number`` equal blocks: groups, inputs of each group, and activation streams."""

    number: int
    groups: int
    inputs: int
    streams: int


def _atom(product: ArrayProduct, words: BankedMemory) -> int:
    """Return the bytes of one input position in one atom."""
    return product.narrow or words.atom


@lru_cache(maxsize=4096)
def _streams(
    shape: WeightShape, depth: int, block: Block, atom: int, rows: int
) -> tuple[_Streams, ...]:
    """Return the (atom, kernel row) pairs that the blocks of weights read, and how many are equal.

    There is one entry for each size of a block in groups and inputs. The array adds ``depth``
    products of a group in parallel or one after another.
    """
    whole = shape.groups == 1 and not (block.taps and shape.inputs % block.inputs)
    if whole and 0 in (atom % block.inputs, block.inputs % atom):
        return tuple(
            [
                _Streams(number, 1, inputs, ceil_div(min(shape.inputs, inputs), atom))
                for number, inputs in _parts(depth, block.inputs)
            ]
        )
    row = ceil_div(depth, rows)
    found = Counter(
        (
            len(groups),
            len(places),
            len(
                {
                    (place // row, (group * shape.inputs + place % shape.inputs) // atom)
                    for group in groups
                    for place in places
                }
            ),
        )
        for groups in _ranges(shape.groups, block.groups)
        for places in _ranges(depth, block.inputs)
    )
    return tuple([_Streams(number, *key) for key, number in found.items()])


def _ranges(size: int, step: int) -> Iterator[range]:
    return (range(first, min(first + step, size)) for first in range(0, size, step))


def _stripes(product: ArrayProduct, across: int, arch: Arch) -> tuple[tuple[int, int], ...]:
    """Return a product's stripes as (number of equal stripes, steps of each) pairs.

    The product takes OH · ⌈OW / across⌉ steps in total, at most P per stripe.
    """
    steps = product.rows * ceil_div(product.columns, across)
    return tuple(_parts(steps, words_of(arch).accumulators))


def _blocks(product: ArrayProduct, block: Block, arch: Arch) -> Iterator[tuple[int, int, int]]:
    """Yield (number of blocks, words, activation streams) of the weight blocks of a stripe.

    The largest block is first.
    """
    shape = product.weights
    words = words_of(arch)
    kernel = shape.rows if product.taps else shape.rows * shape.columns
    atom = _atom(product, words)
    streams = _streams(shape, product.depth, block, atom, product.whole or 1)
    for wide, outputs in _parts(shape.outputs, block.outputs):
        for number, groups, inputs, read in streams:
            weights = groups * outputs * inputs
            load = words.count(weights)
            if product.computed:
                channels, positions = (
                    (outputs, inputs) if product.computed == "outputs" else (inputs, outputs)
                )
                load = words.surfaces(channels) * words.count(positions * words.atom)
            yield number * wide * kernel, load, read


class _Passes(NamedTuple):
    """Loop structure of a product on the array: blocks, stripes, columns and activations.

    Attributes:
        block: the weights that the array stores at a time.
        reach: the activations that a step reads.
        across: output columns per step.
        stripes: (count, steps) of the stripes.
        blocks: (count, words, streams) of the blocks of a stripe, largest first.
        channels: (count, output channels) of the parts of the result that blocks compute.
    """

    block: Block
    reach: _Reach
    across: int
    stripes: tuple[tuple[int, int], ...]
    blocks: tuple[tuple[int, int, int], ...]
    channels: tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def _passes(product: ArrayProduct, arch: Arch) -> _Passes:
    """Return the loop structure of a product on the array.

    Its cycles and the words of its operands all depend on them. Of the most output columns that a
    step can compute, and of a half, a quarter and so on, the array uses the first number with the
    fewest cycles.
    """
    block = product_block(product, arch)
    most = _count_columns_per_step(product, block, arch)
    shape = product.weights
    blocks = tuple(_blocks(product, block, arch))
    channels = tuple(
        [
            (rounds * wide, groups * outputs)
            for rounds, groups in _parts(shape.groups, block.groups)
            for wide, outputs in _parts(shape.outputs, block.outputs)
        ]
    )
    found = [
        _Passes(
            block, _reach(product, columns, arch), columns, _stripes(product, columns, arch),
            blocks, channels,
        )
        for columns in [most >> halves for halves in range(most.bit_length())]
    ]  # fmt: skip
    return (
        min(found, key=lambda one: _compute_bound(product, one, arch))
        if len(found) > 1
        else found[0]
    )


def _compute_bound(product: ArrayProduct, passes: _Passes, arch: Arch) -> int:
    """Return the cycles of a product with int8 results if each operand has a bank of its own."""
    words = _count_words(product, passes, arch, 1)
    return max(sum(_array_cycles(passes, arch)), words.activations, words.weights, words.results)


def product_cycles(product: ArrayProduct, arch: Arch, lanes: int = 0) -> int:
    """Return the compute cycles of a product.

    Its results occupy the lanes for ``lanes`` cycles.
    """
    first, array = _array_cycles(_passes(product, arch), arch)
    return first + max(array, lanes)


def _array_cycles(passes: _Passes, arch: Arch) -> tuple[int, int]:
    """Return the words of the first block, and the cycles of the array after it."""
    _, reach, _, stripes, blocks, _ = passes
    words = words_of(arch)
    array = sum(
        [
            many * count * max(steps * words.count(streams * reach.nbytes), load)
            for many, load, streams in blocks
            for count, steps in stripes
        ]
    )
    return blocks[0][1] if blocks else 0, array


@lru_cache(maxsize=1024)
def best_mapping(product: ArrayProduct, most: int, arch: Arch) -> int:
    """Return the value of the field ``mapping`` with the fewest cycles, from 0 to ``most``.

    The cost is the larger of the compute cycles and the words of activations, one word per cycle.
    Ties go to the mapping that is fastest with one atom of output channels, because tiles can be
    that small, then to the lowest value.
    """
    shape = product.weights
    small = product._replace(
        weights=shape._replace(outputs=min(shape.outputs, words_of(arch).atom))
    )

    def cycles(mapping: int, of: ArrayProduct) -> int:
        one = use_mapping(of, mapping)
        return max(product_cycles(one, arch), product_words(one, arch, 1).activations)

    return min(
        range(most + 1), key=lambda mapping: (cycles(mapping, product), cycles(mapping, small))
    )


def product_bound(product: ArrayProduct, arch: Arch) -> int:
    """Return a lower bound of the cycles of a product.

    Each operand has its own bank, and EX gets every cycle of the bank.
    """
    return max(product_cycles(product, arch), *product_words(product, arch, 1))


class ProductWords(NamedTuple):
    activations: int
    weights: int
    records: int
    results: int


def product_words(product: ArrayProduct, arch: Arch, element: int) -> ProductWords:
    """Return the memory words of each operand of a product, except look-up tables.

    Partial sums have as many words as int32 results.
    """
    return _count_words(product, _passes(product, arch), arch, element)


def _count_words(product: ArrayProduct, passes: _Passes, arch: Arch, element: int) -> ProductWords:
    words = words_of(arch)
    _, reach, across, stripes, blocks, channels = passes
    a_row = stripes[0][1] if product.gapless else ceil_div(product.columns, across)
    fresh = across * product.stride * _atom(product, words)
    activations = written = records = results = 0
    for count, steps in stripes:
        activations += count * min(
            steps * reach.each, words.count(steps * fresh) + ceil_div(steps, a_row)
        )
        written += count * words.count(steps * across * words.atom * element)
    for count, outputs in channels:
        records += count * words.count(outputs * arch.channel_record_bytes)
        results += count * words.surfaces(outputs) * written
    return ProductWords(
        activations * sum([many * streams for many, _, streams in blocks]),
        sum([count for count, _ in stripes]) * _weight_words(product, passes, arch),
        records, results,
    )  # fmt: skip


def product_places(
    product: ArrayProduct, arch: Arch, *, inputs_first: bool = False
) -> NDArray[np.int64]:
    """Return the storage order of a product's weights (:func:`isa.packing.block_places`).

    With ``inputs_first`` dense weights are (inputs, outputs).
    """
    places = compute_transposed_places if inputs_first else block_places
    return places(product.weights, product_block(product, arch), words_of(arch).word)


def product_blocks(product: ArrayProduct, arch: Arch, weights: Bytes) -> Bytes:
    """Convert a product's dense weights to the order in which the array uses them.

    ``weights`` is an array of the shape of the product's weights.
    """
    blocks = np.zeros(product_bytes(product, arch), np.uint8)
    write_blocks(
        product.weights, product_block(product, arch), words_of(arch).word, weights, blocks
    )
    return blocks


def product_bytes(product: ArrayProduct, arch: Arch) -> int:
    """Return the number of bytes of a product's stored weights, including padding."""
    return words_of(arch).word * _weight_words(product, _passes(product, arch), arch)


def _weight_words(product: ArrayProduct, passes: _Passes, arch: Arch) -> int:
    """Return the memory words of a product's weights, each read once.

    Each block of output channels begins with a new word.
    """
    if product.computed:
        return sum([count * load for count, load, _ in passes.blocks])
    shape = product.weights
    words = words_of(arch)
    taps = shape.inputs * shape.rows * shape.columns
    return sum([count * words.count(outputs * taps) for count, outputs in passes.channels])
