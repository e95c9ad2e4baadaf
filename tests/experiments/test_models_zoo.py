"""Current networks have the published sizes, and small versions of them are exact.

Sizes agree to the parameter and the multiply-accumulate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from benchmarks.zoo import read_record, recorded, run_one, table
from byoc.frontend.onnx.rewriting.shapes import infer_shapes
from byoc.graph import Value
from byoc.importing import import_model
from byoc.runtimes.protobuf import shapes_of
from experiments.models import MODELS, classifiers, detection, imaging, microcontrollers, sequences
from isa.arch import Arch
from tests.e2e.harness import compare
from tests.rotation import choose_cases, rotate

Build = Callable[[], ModelProto]


def parameters(model: ModelProto) -> int:
    """Count the trained parameters, without statistics and arithmetic constants."""
    made = ("_mean", "_variance")
    arithmetic = (
        "zero",
        "six",
        "twice",
        "half",
        "anchors",
        "strides",
        "scale",
        "root",
        "one",
        "three",
        "cube",
        "slope",
    )
    return sum(
        int(np.prod(tensor.dims))
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT
        and not tensor.name.endswith(made)
        and tensor.name not in arithmetic
    )


def multiply_accumulates(model: ModelProto) -> int:
    """Count the multiply-accumulates of convolutions, products and recurrences.

    Padded taps count.
    """
    model = infer_shapes(model)
    shapes = shapes_of(model.graph)
    total = 0
    for node in model.graph.node:
        first, second = (
            (shapes.get(name, ()) for name in node.input[:2]) if len(node.input) > 1 else ((), ())
        )
        if node.op_type == "Conv":
            total += int(np.prod(shapes[node.output[0]]) * np.prod(second[1:]))
        elif node.op_type == "ConvTranspose":
            total += int(np.prod(first) * np.prod(second[1:]))
        elif node.op_type in ("Gemm", "MatMul"):
            total += int(np.prod(shapes[node.output[0]])) * first[-1]
        elif node.op_type == "LSTM":
            total += first[0] * int(np.prod(second) + np.prod(shapes[node.input[2]]))
    return total


# Parameters and MACs of the classifiers: torchvision's ``num_params`` and ``_ops`` (GMAC, three
# digits) of the weights MobileNet_V2_Weights and so on; of DeiT-Ti: timm's vit_tiny_patch16_224
# (5.72 M, 1.26 GMAC); of YOLOv8n: Ultralytics' summary (3,157,200 and 8.7 GFLOP); of PointPillars:
# 4.8 M in table 3 of Li et al. (2022).
PUBLISHED = [
    ("mobilenet-v2", 3_504_872, 0.301),
    ("mobilenet-v3-small", 2_542_856, 0.057),
    ("mobilenet-v3-large", 5_483_032, 0.217),
    ("efficientnet-b0", 5_288_548, 0.386),
    ("squeezenet", 1_235_496, 0.349),
    ("shufflenet-v2", 2_278_604, 0.145),
    ("vit-tiny", 5_717_416, 1.254),
    ("yolo-v8n", 3_157_200, 4.372),
    ("point-pillars", 4_834_120, 34.174),
]


@pytest.mark.parametrize(
    ("name", "weights", "gigas"), PUBLISHED, ids=[name for name, *_ in PUBLISHED]
)
def test_sizes_are_the_published_ones(name: str, weights: int, gigas: float) -> None:
    model = MODELS[name].build(0)
    assert parameters(model) == weights
    assert round(multiply_accumulates(model) / 1e9, 3) == gigas


BERT_BLOCK = 12 * 768 * 768 + 4 * 768 + 3072 + 768 + 4 * 768
WORDS = 1000


@pytest.mark.parametrize(
    ("build", "weights", "macs"),
    [
        pytest.param(
            # 109,482,240 in all (Devlin et al., 2019), of which 384 positions and the types of
            # tokens are not there.
            partial(sequences.bert, blocks=1, words=WORDS),
            109_482_240 - 11 * BERT_BLOCK - (30_522 - WORDS + 512 - 128 + 2) * 768,
            12 * 768 * 768 * 128 + 2 * 128 * 128 * 768 + 768 * 768,
            id="bert",
        ),
        pytest.param(
            # 124,439,808 in all (Radford et al., 2019), of which all positions but one are not
            # there.
            partial(sequences.gpt2, blocks=1, words=WORDS),
            124_439_808 - 11 * BERT_BLOCK - (50_257 - WORDS + 1023) * 768,
            12 * 768 * 768 + 2 * 64 * 768 + WORDS * 768,
            id="gpt2",
        ),
        pytest.param(
            # A quarter of the channels of C3D and of its hidden features: a sixteenth of nearly
            # everything.
            partial(classifiers.c3d, width=16, hidden=1024),
            16 * 3 * 27
            + (16 * 32 + 32 * 64 + 64 * 64 + 64 * 128 + 3 * 128 * 128) * 27
            + 16
            + 32
            + 2 * 64
            + 4 * 128
            + 2048 * 1024
            + 1024 * 1024
            + 2 * 1024
            + 1025 * 487,
            27
            * (
                16 * 112 * 112 * 3 * 16
                + 16 * 56 * 56 * 16 * 32
                + 8 * 28 * 28 * (32 * 64 + 64 * 64)
                + 4 * 14 * 14 * (64 * 128 + 128 * 128)
                + 2 * 7 * 7 * 2 * 128 * 128
            )
            + 2048 * 1024
            + 1024 * 1024
            + 1024 * 487,
            id="c3d",
        ),
        pytest.param(
            partial(sequences.lstm, layers=2, hidden=64, steps=10),
            2 * 4 * 64 * (128 + 2),
            10 * 2 * 4 * 64 * 128,
            id="lstm",
        ),
        pytest.param(
            # Each of twenty layers: two convolutions of two taps, one to the skips, but for the
            # last one on.
            sequences.wavenet,
            3 * 64 + 20 * (4 * 4096 + 128 + 8192 + 128) + 19 * (4096 + 64) + 129 * 128 + 129 * 256,
            2048 * (2 * 64 + 20 * (4 * 4096 + 8192) + 19 * 4096 + 128 * 128 + 128 * 256),
            id="wavenet",
        ),
        # 264,192: Banbury et al. (2021); 2.98 GMAC: the formula of Shi et al. (2016), section 3.2,
        # with four layers.
        pytest.param(imaging.autoencoder, 264_192 + 3 * 1032 + 640, 264_192, id="autoencoder"),
        pytest.param(imaging.super_resolution, 59_657, 224 * 224 * 59_488, id="super-resolution"),
        # Counts of Vela 5.2 for the TensorFlow Lite files: weights, without the rounding of a
        # layer's weights up to 16 bytes, and MACs, less those of average pool and softmax. A bias a
        # channel; batch normalisation has two numbers.
        pytest.param(
            microcontrollers.keyword_spotting,
            22_016 + 588,
            2_664_792 - 8_000 - 24,
            id="keyword-spotting",
        ),
        pytest.param(
            microcontrollers.visual_wake_words,
            208_128 - 16 + 2_738,
            7_491_972 - 2_304 - 4,
            id="visual-wake-words",
        ),
        pytest.param(
            microcontrollers.person_detection,
            207_984 - 16 + 2_738,
            7_160_196 - 2_304 - 4,
            id="person-detection",
        ),
        pytest.param(
            microcontrollers.streaming_wake_word,
            46_048 - 8 + 843,
            826_374 - 6,
            id="streaming-wake-word",
        ),
        pytest.param(microcontrollers.micro_speech, 16_640 + 12, 336_008 - 8, id="micro-speech"),
        pytest.param(
            partial(classifiers.resnet_8, width=40),
            479_488 - 8 + 2 * 840 + 10,
            76_484_180 - 10_240 - 20,
            id="resnet-8-large",
        ),
    ],
)
def test_sizes_worked_by_hand(build: Build, weights: int, macs: int) -> None:
    model = build()
    assert parameters(model) == weights
    assert multiply_accumulates(model) == macs


SMALL = {
    "mobilenet-v2": partial(classifiers.build_classifier, "mobilenet-v2", size=32),
    "mobilenet-v3-small": partial(classifiers.build_classifier, "mobilenet-v3-small", size=32),
    "shufflenet-v2": partial(classifiers.shufflenet_v2, size=32),
    "unet": partial(imaging.unet, size=32, width=4),
    "autoencoder": imaging.autoencoder,
    "keyword-spotting": microcontrollers.keyword_spotting,
    "person-detection": microcontrollers.person_detection,
    "streaming-wake-word": microcontrollers.streaming_wake_word,
    "micro-speech": microcontrollers.micro_speech,
    "super-resolution": partial(imaging.super_resolution, size=12),
    "yolo-v8n": partial(detection.yolo_v8n, size=64),
    "point-pillars": partial(detection.point_pillars, size=(16, 24)),
    "vit-tiny": partial(sequences.vit_tiny, size=32, blocks=1, width=48),
    "bert": partial(sequences.bert, blocks=1, tokens=12, width=48, heads=3, words=50),
    "gpt2": partial(sequences.gpt2, blocks=1, past=7, width=48, heads=3, words=50),
    "lstm": partial(sequences.lstm, layers=2, hidden=12, steps=4),
    "wavenet": partial(sequences.wavenet, channels=8, doublings=4, length=64),
    "c3d": partial(classifiers.c3d, size=32, width=4, hidden=32, classes=10),
    "r2plus1d": partial(classifiers.r2plus1d, size=16, width=8, classes=10),
}


DEEP = ("mobilenet-v2", "mobilenet-v3-small", "shufflenet-v2", "yolo-v8n", "c3d", "r2plus1d")
"""A hundred layers each, or three dimensions."""


@pytest.mark.parametrize(
    "name",
    [
        *rotate([name for name in SMALL if name not in DEEP], 3),
        *(pytest.param(name, marks=pytest.mark.slow) for name in choose_cases(DEEP, 3)),
    ],
)
def test_small_ones_are_exact(name: str) -> None:
    """On the newest machine with little memory, as one region by either schedule.

    The published one fuses nothing.
    """
    package = import_model(SMALL[name](), name)
    inputs = {value: fed(package.graph.values[value]) for value in package.graph.inputs}
    for schedule in ("default", "seed"):
        result = compare(package, inputs, Arch(isa="v4", sram_bytes=1 << 16), schedule)
        assert (result.mismatches, len(result.partition.regions)) == (0, 1)
    (program,) = result.network.programs.values()
    assert not any(command.fields.get("look_up") for command in program.commands)


ROOT = Path(__file__).parents[2]
RECORD = read_record(ROOT / "benchmarks/zoo.csv")
QUICK = ("digits-cnn", "resnet-8", "resnext-11", "autoencoder", "lstm-small")


def test_the_record_shows_what_is_claimed_of_the_zoo() -> None:
    """Every network has no mismatch and at most two regions.

    With integer inputs and outputs, less than a twentieth of the cycles are the CPU's.
    """
    assert {network for network, _ in RECORD} <= set(MODELS)
    for key, row in RECORD.items():
        assert row["mismatches"] == 0, key
        assert 1 <= row["regions"] <= 2, key
        assert row["cpu_cycles"] - row["interface_cycles"] < 0.05 * row["all_cycles"], key


def test_the_document_shows_the_record() -> None:
    """docs/validation.md has the table that ``benchmarks.zoo`` prints.

    The command is ``python -m benchmarks.zoo --table benchmarks/zoo.csv``.
    """
    assert table(RECORD) in (ROOT / "docs/validation.md").read_text()


@pytest.mark.parametrize("name", rotate(QUICK, len(QUICK)))
def test_quick_networks_are_as_recorded(name: str) -> None:
    """Quick networks take exactly the recorded cycles.

    ``python -m benchmarks.zoo --record benchmarks/zoo.csv`` records them again.
    """
    machines = [machine for network, machine in RECORD if network == name]
    found = map(recorded, run_one(name, machines))
    assert dict(zip(machines, found, strict=True)) == {
        machine: RECORD[name, machine] for machine in machines
    }


def fed(value: Value) -> NDArray[Any]:
    """Normal numbers, or small integers."""
    random = np.random.default_rng(1)
    if value.dtype == "int64":
        return random.integers(0, 50, value.shape)
    return random.standard_normal(value.shape, np.float32)
