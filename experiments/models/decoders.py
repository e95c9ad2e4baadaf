"""Decoders with a cache of keys and values, seeded weights, in the form that exporters write.

Inputs are ``input_ids`` and ``position_ids`` (1, sequence), and ``past_key_values.N.key`` and
``.value`` (1, heads, past, depth) of every layer. Outputs are ``logits`` (1, sequence, words), and
``present.N.key`` and ``.value``, which contain the past and the new positions. The dimensions
``sequence`` and ``past`` are dynamic.

GPT-2 is the small model of Radford et al. (2019). The other decoder has the structure of Llama
(Touvron et al., 2023) and the sizes of stories15M (Karpathy, 2023), with two groups of queries: its
keys and values have a third of the query heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from experiments.models.builder import NetworkBuilder
from experiments.models.sequences import (
    GPT2_WORDS,
    HEADS,
    WIDTH,
    add_attention,
    add_gpt2_tail,
    add_heads,
)

if TYPE_CHECKING:
    from onnx import ModelProto

SEQUENCE, PAST, TOTAL = "sequence", "past", "total"
LOWEST = float(np.finfo(np.float32).min)
RMS_EPSILON = 1e-5


def gpt2_decoder(
    seed: int = 0,
    blocks: int = 12,
    *,
    width: int = WIDTH,
    heads: int = HEADS,
    words: int = GPT2_WORDS,
    positions: int = 1024,
) -> ModelProto:
    """Return GPT-2, which computes its logits with the word embeddings."""
    net = NetworkBuilder("gpt2-decoder", "input_ids", (1, SEQUENCE), seed, np.int64)
    net.input("position_ids", (1, SEQUENCE), np.int64)
    table = net.weights("word_embeddings", (words, width), 1, 0.02)
    # Strong positions, because a random network would otherwise repeat one token.
    places = net.weights("position_embeddings", (positions, width), 1, 1.0)
    cache = _Cache(net, blocks, heads, width // heads)
    mask = _add_mask(net)
    value = net.node(
        "Add",
        "embedded",
        net.node("Gather", "word", table, "input_ids"),
        net.node("Gather", "position", places, "position_ids"),
    )
    for index in range(blocks):
        name = f"block{index}"
        rows = net.linear(
            f"{name}_qkv", net.layer_norm(f"{name}_norm1", value, width), (width, 3 * width)
        )
        parts = net.split(f"{name}_parts", rows, (width,) * 3, axis=2)
        query, key, values = (
            add_heads(net, f"{name}_{part}", source, (0, 0, heads, -1))
            for part, source in zip(("q", "k", "v"), parts, strict=True)
        )
        key, values = cache.append(index, key, values)
        columns = net.node("Transpose", f"{name}_columns", key, perm=[0, 1, 3, 2])
        mixed = add_attention(net, name, query, columns, values, width // heads, mask)
        mixed = net.reshape(f"{name}_joined", mixed, (0, 0, width))
        value = add_gpt2_tail(net, name, mixed, value, width)
    columns = net.node("Transpose", "word_columns", table, perm=[1, 0])
    net.node("MatMul", "logits", net.layer_norm("norm", value, width), columns)
    return net.model("logits", (1, SEQUENCE, words), **cache.present)


def llama_decoder(
    seed: int = 0,
    blocks: int = 6,
    *,
    width: int = 288,
    heads: int = 6,
    groups: int = 2,
    hidden: int = 768,
    words: int = 32_000,
) -> ModelProto:
    """Return a decoder like Llama.

    It has ``groups`` heads of keys and values, rotary positions, RMS normalisation and SwiGLU. The
    input ``attention_mask`` (1, total) marks the positions that are not padding.
    """
    net = NetworkBuilder("llama-decoder", "input_ids", (1, SEQUENCE), seed, np.int64)
    net.input("attention_mask", (1, TOTAL), np.int64)
    net.input("position_ids", (1, SEQUENCE), np.int64)
    table = net.weights("word_embeddings", (words, width), 1, 1.0)
    depth = width // heads
    cache = _Cache(net, blocks, groups, depth)
    mask = _add_mask(net, "attention_mask")
    turns = _add_turns(net, depth)
    value = net.node("Gather", "word", table, "input_ids")
    for index in range(blocks):
        name = f"block{index}"
        norm = _add_rms_norm(net, f"{name}_norm1", value, width)
        query, key, values = (
            add_heads(
                net,
                f"{name}_{part}",
                _add_product(net, f"{name}_{part}_rows", norm, sizes),
                (0, 0, count, -1),
            )
            for part, sizes, count in (
                ("q", (width, width), heads),
                ("k", (width, groups * depth), groups),
                ("v", (width, groups * depth), groups),
            )
        )
        query, key = (
            _add_rotation(net, f"{name}_{part}_turned", source, turns, depth)
            for part, source in (("q", query), ("k", key))
        )
        key, values = cache.append(index, key, values)
        key, values = (
            _add_repeat(net, f"{name}_every_{part}", source, groups, heads // groups, depth)
            for part, source in (("k", key), ("v", values))
        )
        columns = net.node("Transpose", f"{name}_columns", key, perm=[0, 1, 3, 2])
        mixed = add_attention(net, name, query, columns, values, depth, mask)
        mixed = net.reshape(f"{name}_joined", mixed, (0, 0, width))
        mixed = _add_product(net, f"{name}_project", mixed, (width, width))
        value = net.node("Add", f"{name}_add1", value, mixed)
        norm = _add_rms_norm(net, f"{name}_norm2", value, width)
        inner = _add_swiglu(net, name, norm, (width, hidden))
        value = net.node("Add", f"{name}_add2", value, inner)
    _add_product(net, "logits", _add_rms_norm(net, "norm", value, width), (width, words))
    return net.model("logits", (1, SEQUENCE, words), **cache.present)


class _Cache:
    """Cached keys and values of all layers: inputs of the past, and outputs with new positions."""

    def __init__(self, net: NetworkBuilder, blocks: int, heads: int, depth: int) -> None:
        self._net = net
        self.present: dict[str, tuple[int | str, ...]] = {}
        for index in range(blocks):
            for part in ("key", "value"):
                net.input(f"past_key_values.{index}.{part}", (1, heads, PAST, depth))
                self.present[f"present.{index}.{part}"] = (1, heads, TOTAL, depth)

    def append(self, index: int, key: str, value: str) -> tuple[str, str]:
        """Append the new keys and values of a layer to its cache; return all of them."""
        made = [
            self._net.concat(
                f"present.{index}.{part}", f"past_key_values.{index}.{part}", new, axis=2
            )
            for part, new in (("key", key), ("value", value))
        ]
        return made[0], made[1]


def _add_size(net: NetworkBuilder, name: str, source: str, axis: int) -> str:
    """Add the size of one axis of a tensor, as a scalar."""
    shape = net.node("Shape", f"{name}_shape", source)
    return net.node("Gather", name, shape, net.constant(f"axis{axis}", np.array(axis)), axis=0)


def _add_mask(net: NetworkBuilder, padding: str = "") -> str:
    """Add the causal mask (1, 1, sequence, total), computed from the shapes of the inputs."""
    past = _add_size(net, "past_size", "past_key_values.0.key", 2)
    total = net.node("Add", "total_size", past, _add_size(net, "sequence_size", "input_ids", 1))
    zero, one = (net.constant(name, np.array(value)) for name, value in (("zero", 0), ("step", 1)))
    keys = net.node("Range", "key_positions", zero, total, one)
    rows = net.node("Range", "query_positions", past, total, one)
    rows = net.reshape("query_column", rows, (-1, 1))
    seen = net.node("LessOrEqual", "seen", keys, rows)
    if padding:
        shown = net.node("Cast", "shown", padding, to=9)
        seen = net.node("And", "seen_and_shown", seen, shown)
    values = [
        net.constant(name, np.array(value))
        for name, value in (("nothing", 0.0), ("lowest", LOWEST))
    ]
    return net.node(
        "Unsqueeze",
        "mask",
        net.node("Where", "mask_rows", seen, *values),
        net.constant("mask_axes", np.array([0, 1], np.int64)),
    )


def _add_product(net: NetworkBuilder, name: str, source: str, features: tuple[int, int]) -> str:
    """Add a MatMul with weights (in, out) and without a bias."""
    weights = net.weights(f"{name}_weight", features, features[0])
    return net.node("MatMul", name, source, weights)


def _add_rms_norm(net: NetworkBuilder, name: str, source: str, width: int) -> str:
    """Add x / √(mean(x²) + 1e-5) · gain as the six operators that PyTorch's exporter writes."""
    square = net.node("Pow", f"{name}_square", source, net.constant("two", np.array(2.0)))
    axes = net.constant("last_axis", np.array([-1], np.int64))
    mean = net.node("ReduceMean", f"{name}_mean", square, axes, keepdims=1)
    mean = net.node("Add", f"{name}_add", mean, net.constant("epsilon", np.array(RMS_EPSILON)))
    root = net.node("Sqrt", f"{name}_root", mean)
    factor = net.node("Reciprocal", f"{name}_factor", root)
    scaled = net.node("Mul", f"{name}_scaled", source, factor)
    gain = np.linspace(0.9, 1.1, width)
    return net.node("Mul", name, net.constant(f"{name}_gain", gain), scaled)


def _add_swiglu(net: NetworkBuilder, name: str, source: str, features: tuple[int, int]) -> str:
    """Add SwiGLU, a product of two projections, one through SiLU, and its projection back."""
    gate = _add_product(net, f"{name}_gate", source, features)
    gate = net.node("Mul", f"{name}_silu", gate, net.node("Sigmoid", f"{name}_sigmoid", gate))
    inner = _add_product(net, f"{name}_up", source, features)
    inner = net.node("Mul", f"{name}_gated", gate, inner)
    return _add_product(net, f"{name}_down", inner, features[::-1])


def _add_turns(net: NetworkBuilder, depth: int) -> tuple[str, str]:
    """Add cosine and sine (1, 1, sequence, depth) of every position's rotary angles."""
    frequencies = 10_000.0 ** (-np.arange(0, depth, 2) / depth)
    last = net.constant("last_axis", np.array([-1], np.int64))
    column = net.node(
        "Cast", "positions", net.node("Unsqueeze", "position_column", "position_ids", last), to=1
    )
    angles = net.node("Mul", "angles", column, net.constant("frequencies", frequencies))
    angles = net.concat("all_angles", angles, angles, axis=-1)
    heads = net.constant("head_axis", np.array([1], np.int64))
    cosine, sine = (
        net.node("Unsqueeze", f"{kind}_heads", net.node(kind, kind, angles), heads)
        for kind in ("Cos", "Sin")
    )
    return cosine, sine


def _add_rotation(
    net: NetworkBuilder, name: str, source: str, turns: tuple[str, str], depth: int
) -> str:
    """Add the rotation of all pairs of channels (i, i + depth / 2) by the position's angles."""
    ends = (
        net.constant(f"end{value}", np.array([value], np.int64)) for value in (0, depth // 2, depth)
    )
    start, middle, end = ends
    last = net.constant("last_axis", np.array([-1], np.int64))
    low = net.node("Slice", f"{name}_low", source, start, middle, last)
    high = net.node("Slice", f"{name}_high", source, middle, end, last)
    swapped = net.concat(f"{name}_swapped", net.node("Neg", f"{name}_minus", high), low, axis=-1)
    cosine, sine = turns
    return net.node(
        "Add",
        name,
        net.node("Mul", f"{name}_cosine", source, cosine),
        net.node("Mul", f"{name}_sine", swapped, sine),
    )


def _add_repeat(
    net: NetworkBuilder, name: str, source: str, groups: int, times: int, depth: int
) -> str:
    """Add the repetition of every head of keys or values for the queries of its group."""
    axis = net.constant("group_axis", np.array([2], np.int64))
    apart = net.node("Unsqueeze", f"{name}_apart", source, axis)
    shape = net.constant(f"repeat{times}", np.array([1, 1, times, 1, 1], np.int64))
    repeated = net.node("Expand", f"{name}_repeated", apart, shape)
    return net.reshape(name, repeated, (1, groups * times, -1, depth))


DECODERS: Mapping[str, tuple[str, Callable[[int], ModelProto]]] = MappingProxyType(
    {
        "gpt2-decoder": ("GPT-2, 12 blocks, keys and values cached", gpt2_decoder),
        "llama-decoder": (
            "like Llama, 6 blocks, grouped queries, keys and values cached",
            llama_decoder,
        ),
        "gpt2-decoder-small": (
            "GPT-2 with 2 blocks of 64 channels and 256 words",
            lambda seed: gpt2_decoder(seed, 2, width=64, heads=4, words=256, positions=128),
        ),
        "llama-decoder-small": (
            "like Llama, 2 blocks of 64 channels and 256 words",
            lambda seed: llama_decoder(seed, 2, width=64, heads=4, groups=2, hidden=128, words=256),
        ),
    }
)
"""Description and builder of the decoders of ``dla generate``, by name."""
