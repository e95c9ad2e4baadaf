"""Sequence networks and transformers with seeded weights, in the forms that exporters write.

The stack of LSTMs is the sequence-to-sequence network of Baghdadi et al. (2020): four layers, 1,024
hidden, 100 steps. The dilated convolutions are WaveNet's (van den Oord et al., 2016): two series of
ten gated layers.

ViT-tiny is DeiT-Ti (Touvron et al., 2021): width 192, three heads, twelve blocks, one matrix for
queries, keys and values, Gelu as one operator. BERT is the base model of Devlin et al. (2019) with
its pooler; it needs no mask, because no token is padding; its Gelu is written with Erf. GPT-2 is
the small model of Radford et al. (2019) for one new token; keys and values of earlier tokens come
from a cache; its Gelu is written with Tanh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments.models.builder import NetworkBuilder

if TYPE_CHECKING:
    from onnx import ModelProto


def lstm(seed: int = 0, layers: int = 4, hidden: int = 1024, steps: int = 100) -> ModelProto:
    """Return a stack of LSTMs.

    It maps ``sequence`` (``steps``, 1, ``hidden``) to ``translated`` of the same shape.
    """
    net = NetworkBuilder("lstm", "sequence", (steps, 1, hidden), seed)
    value = "sequence"
    for index in range(layers):
        name = f"lstm{index}"
        # The state is about a third of the inputs. Weak recurrence makes the network forget errors.
        weights = net.weights(
            f"{name}_weight", (1, 4 * hidden, hidden), hidden, 4.0 if index else 1.0
        )
        recurrent = net.weights(f"{name}_recurrent", (1, 4 * hidden, hidden), hidden, 1.0)
        biases = net.biases(f"{name}_bias", (1, 8 * hidden))
        net.node(
            "LSTM",
            name,
            value,
            weights,
            recurrent,
            biases,
            outputs=[f"{name}_all"],
            hidden_size=hidden,
        )
        output = "translated" if index == layers - 1 else f"{name}_rows"
        value = net.node(
            "Squeeze", output, f"{name}_all", net.constant("directions", np.array([1], np.int64))
        )
    return net.model("translated", (steps, 1, hidden))


def wavenet(
    seed: int = 0, channels: int = 64, doublings: int = 10, length: int = 2048
) -> ModelProto:
    """Return WaveNet, a network of causal convolutions.

    It maps ``wave`` (1, 1, ``length``) to ``logits`` (1, 256, ``length``). It has two series of
    ``doublings`` layers; the last of each reaches ``2 ** (doublings - 1)`` samples back.
    """
    net = NetworkBuilder("wavenet", "wave", (1, 1, length), seed)
    value = net.convolution("first", "wave", (1, channels), (2,), gain=1.0, bias=0.0, pads=[1, 0])
    skips = ""
    for index in range(2 * doublings):
        dilation = 1 << index % doublings
        name = f"layer{index}"
        wave, gate = (
            net.node(
                kind,
                f"{name}_{kind.lower()}",
                net.convolution(
                    f"{name}_for_{kind.lower()}",
                    value,
                    (channels, channels),
                    (2,),
                    gain=2.0,
                    bias=0.0,
                    pads=[dilation, 0],
                    dilations=[dilation],
                ),
            )
            for kind in ("Tanh", "Sigmoid")
        )
        gated = net.node("Mul", f"{name}_gated", wave, gate)
        skip = net.convolution(
            f"{name}_skip", gated, (channels, 2 * channels), (1,), gain=1.0, bias=0.0
        )
        skips = net.node("Add", f"{name}_skips", skips, skip) if skips else skip
        if index < 2 * doublings - 1:
            passed = net.convolution(
                f"{name}_pass", gated, (channels, channels), (1,), gain=1.0, bias=0.0
            )
            value = net.node("Add", f"{name}_add", value, passed)
    value = net.relu("end_relu", skips)
    value = net.relu(
        "end1_relu", net.convolution("end1", value, (2 * channels, 2 * channels), (1,), bias=0.0)
    )
    return net.model(
        net.convolution("logits", value, (2 * channels, 256), (1,), bias=0.0), (1, 256, length)
    )


WIDTH = 768
HEADS = 12
BERT_WORDS = 30_522
GPT2_WORDS = 50_257


def vit_tiny(
    seed: int = 0, size: int = 224, blocks: int = 12, width: int = 192, heads: int = 3
) -> ModelProto:
    """Return ViT-tiny for square images.

    It maps ``image`` (1, 3, ``size``, ``size``) to ``logits`` (1, 1000). The ``size`` must be a
    multiple of 16.
    """
    net = NetworkBuilder("vit-tiny", "image", (1, 3, size, size), seed)
    patches = (size // 16) ** 2
    tokens = patches + 1
    value = net.convolution(
        "patches", "image", (3, width), 16, 16, gain=1.0, bias=0.0, pads=[0] * 4
    )
    value = net.reshape("patches_flat", value, (1, width, patches))
    value = net.node("Transpose", "patches_last", value, perm=[0, 2, 1])
    value = net.concat("tokens", net.weights("class_token", (1, 1, width), 1, 0.1), value)
    value = net.node("Add", "embedded", value, net.weights("positions", (1, tokens, width), 1, 0.1))
    for index in range(blocks):
        name = f"block{index}"
        rows = net.linear(
            f"{name}_qkv", net.layer_norm(f"{name}_norm1", value, width), (width, 3 * width)
        )
        rows = net.reshape(f"{name}_parts", rows, (1, tokens, 3, heads, width // heads))
        rows = net.node("Transpose", f"{name}_parts_first", rows, perm=[2, 0, 3, 1, 4])
        query, key, head = (
            _add_slice(net, f"{name}_{part}", rows, 0, at)
            for at, part in enumerate(("q", "k", "v"))
        )
        key = net.node("Transpose", f"{name}_k_columns", key, perm=[0, 1, 3, 2])
        mixed = add_attention(net, name, query, key, head, width // heads)
        mixed = net.reshape(f"{name}_joined", mixed, (1, tokens, width))
        mixed = net.linear(f"{name}_project", mixed, (width, width), 0.5)
        value = net.node("Add", f"{name}_add1", value, mixed)
        inner = net.linear(
            f"{name}_up", net.layer_norm(f"{name}_norm2", value, width), (width, 4 * width)
        )
        inner = net.linear(
            f"{name}_down", net.node("Gelu", f"{name}_gelu", inner), (4 * width, width)
        )
        value = net.node("Add", f"{name}_add2", value, inner)
    value = _add_slice(net, "class", net.layer_norm("norm", value, width), 1, 0)
    return net.model(net.add_fully_connected("logits", value, (width, 1000), 1.0), (1, 1000))


def bert(
    seed: int = 0,
    blocks: int = 12,
    tokens: int = 128,
    *,
    width: int = WIDTH,
    heads: int = HEADS,
    words: int = BERT_WORDS,
) -> ModelProto:
    """Return BERT with ``blocks`` encoder blocks.

    The input is ``input_ids`` (1, ``tokens``); the outputs are ``hidden`` (1, ``tokens``,
    ``width``) and ``pooled`` (1, ``width``).
    """
    net = NetworkBuilder(f"bert-{blocks}-{tokens}", "input_ids", (1, tokens), seed, np.int64)
    value = net.node(
        "Gather", "words", net.weights("word_embeddings", (words, width), 1, 0.5), "input_ids"
    )
    value = net.node("Add", "placed", value, net.weights("positions", (1, tokens, width), 1, 0.5))
    value = net.layer_norm("embedded", value, width)
    for index in range(blocks):
        name = f"block{index}"
        query, key, head = (
            add_heads(
                net,
                f"{name}_{part}",
                net.linear(f"{name}_{part}_rows", value, (width, width)),
                (1, tokens, heads, -1),
                perm,
            )
            for part, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3)))
        )
        mixed = add_attention(net, name, query, key, head, width // heads)
        mixed = net.linear(
            f"{name}_project",
            net.reshape(f"{name}_joined", mixed, (1, tokens, width)),
            (width, width),
        )
        last = index == blocks - 1
        value = net.layer_norm(
            f"{name}_norm1", net.node("Add", f"{name}_add1", mixed, value), width
        )
        inner = _gelu_erf(net, f"{name}_gelu", net.linear(f"{name}_up", value, (width, 4 * width)))
        inner = net.linear(f"{name}_down", inner, (4 * width, width), 2.0)
        name = "hidden" if last else f"{name}_norm2"
        value = net.layer_norm(name, net.node("Add", f"block{index}_add2", inner, value), width)
    pooled = net.add_fully_connected(
        "pooler", _add_slice(net, "first", value, 1, 0), (width, width), 1.0
    )
    net.node("Tanh", "pooled", pooled)
    return net.model("hidden", (1, tokens, width), pooled=(1, width))


def gpt2(
    seed: int = 0,
    blocks: int = 12,
    past: int = 63,
    *,
    width: int = WIDTH,
    heads: int = HEADS,
    words: int = GPT2_WORDS,
) -> ModelProto:
    """Return GPT-2 for one token ``input_ids`` (1, 1) after ``past`` cached ones.

    Cache inputs are ``past_key_0`` (1, heads, past, width/heads) and so on. Outputs are ``logits``
    (1, ``words``), computed with the word embeddings, and each block's new row of the cache,
    ``new_key_0`` (1, heads, 1, width/heads) and so on.
    """
    net = NetworkBuilder(f"gpt2-{blocks}", "input_ids", (1, 1), seed, np.int64)
    table = net.weights("word_embeddings", (words, width), 1, 0.02)
    depth = width // heads
    value = net.node("Gather", "word", table, "input_ids")
    value = net.node("Add", "embedded", value, net.weights("position", (1, 1, width), 1, 0.02))
    new: dict[str, tuple[int, ...]] = {}
    for index in range(blocks):
        name = f"block{index}"
        rows = net.linear(
            f"{name}_qkv", net.layer_norm(f"{name}_norm1", value, width), (width, 3 * width)
        )
        parts = net.split(f"{name}_parts", rows, (width,) * 3, axis=2)
        names = (f"{name}_query", f"new_key_{index}", f"new_value_{index}")
        heads_of = [
            add_heads(net, *pair, (1, 1, heads, -1)) for pair in zip(names, parts, strict=True)
        ]
        new |= dict.fromkeys(names[1:], (1, heads, 1, depth))
        cached = []
        for key, made in zip(("key", "value"), heads_of[1:], strict=True):
            before = net.input(f"past_{key}_{index}", (1, heads, past, depth))
            cached.append(net.concat(f"{name}_every_{key}", before, made, axis=2))
        columns = net.node("Transpose", f"{name}_columns", cached[0], perm=[0, 1, 3, 2])
        mixed = net.reshape(
            f"{name}_joined",
            add_attention(net, name, heads_of[0], columns, cached[1], depth),
            (1, 1, width),
        )
        value = add_gpt2_tail(net, name, mixed, value, width)
    value = net.reshape("last", net.layer_norm("norm", value, width), (1, width))
    columns = net.node("Transpose", "word_columns", table, perm=[1, 0])
    net.node("MatMul", "logits", value, columns)
    return net.model("logits", (1, words), **new)


def add_gpt2_tail(net: NetworkBuilder, name: str, mixed: str, value: str, width: int) -> str:
    """Add the layers of a GPT-2 block after attention: the projection and the two-layer network."""
    value = net.node(
        "Add", f"{name}_add1", net.linear(f"{name}_project", mixed, (width, width)), value
    )
    inner = net.linear(
        f"{name}_up", net.layer_norm(f"{name}_norm2", value, width), (width, 4 * width)
    )
    inner = net.linear(f"{name}_down", _gelu_tanh(net, f"{name}_gelu", inner), (4 * width, width))
    return net.node("Add", f"{name}_add2", inner, value)


def _add_slice(net: NetworkBuilder, name: str, source: str, axis: int, index: int) -> str:
    """Add a Gather that selects one index of an axis and removes the axis."""
    return net.node(
        "Gather", name, source, net.constant(f"at{index}", np.array(index, np.int64)), axis=axis
    )


def add_heads(
    net: NetworkBuilder,
    name: str,
    rows: str,
    shape: tuple[int, ...],
    perm: tuple[int, ...] = (0, 2, 1, 3),
) -> str:
    """Add the split of rows (1, tokens, width) into heads of ``shape``, permuted.

    The shape is that of the reshaped rows, (1, tokens, heads, depth).
    """
    split = net.reshape(f"{name}_split", rows, shape)
    return net.node("Transpose", name, split, perm=list(perm))


def add_attention(
    net: NetworkBuilder,
    name: str,
    query: str,
    columns: str,
    values: str,
    depth: int,
    mask: str = "",
) -> str:
    """Add scaled dot-product attention over all heads.

    The queries are (1, heads, tokens, depth), the keys (1, heads, depth, all); the result is
    (1, tokens, heads, depth). A ``mask`` is added to the scores.
    """
    scores = net.node("MatMul", f"{name}_scores", query, columns)
    scores = net.node("Mul", f"{name}_scaled", scores, net.constant("scale", np.array(depth**-0.5)))
    if mask:
        scores = net.node("Add", f"{name}_masked", scores, mask)
    shares = net.node("Softmax", f"{name}_softmax", scores, axis=-1)
    return net.node(
        "Transpose",
        f"{name}_mixed",
        net.node("MatMul", f"{name}_values", shares, values),
        perm=[0, 2, 1, 3],
    )


def _gelu_erf(net: NetworkBuilder, name: str, source: str) -> str:
    """Add x · (1 + erf(x / √2)) / 2 as five operators."""
    root, one, half = (
        net.constant(key, np.array(value))
        for key, value in (("root", 2**0.5), ("one", 1.0), ("half", 0.5))
    )
    value = net.node("Erf", f"{name}_erf", net.node("Div", f"{name}_div", source, root))
    value = net.node("Mul", f"{name}_mul", source, net.node("Add", f"{name}_add", value, one))
    return net.node("Mul", name, value, half)


def _gelu_tanh(net: NetworkBuilder, name: str, source: str) -> str:
    """Add x · (1 + tanh(√(2 / π) · (x + 0.044715 · x³))) / 2 as eight operators."""
    constants = {
        "three": 3.0,
        "cube": 0.044715,
        "slope": (2 / np.pi) ** 0.5,
        "one": 1.0,
        "half": 0.5,
    }
    three, cube, slope, one, half = (
        net.constant(key, np.array(value)) for key, value in constants.items()
    )
    value = net.node("Mul", f"{name}_cube", net.node("Pow", f"{name}_pow", source, three), cube)
    value = net.node("Mul", f"{name}_slope", net.node("Add", f"{name}_inner", source, value), slope)
    value = net.node("Add", f"{name}_one", net.node("Tanh", f"{name}_tanh", value), one)
    return net.node("Mul", name, net.node("Mul", f"{name}_half", source, half), value)
