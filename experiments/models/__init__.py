"""Built-in networks by name.

The module that builds a network is imported when the network is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from experiments.models import digits, inputs, light
from experiments.models.sequences import BERT_WORDS, GPT2_WORDS, HEADS

if TYPE_CHECKING:
    from onnx import ModelProto

Feeds = dict[str, NDArray[Any]]
Dataset = tuple[NDArray[np.float32], NDArray[np.int64]]

PHOTOGRAPH_CROPS = 16


@dataclass(frozen=True)
class BuiltinModel:
    """Built-in network with its builder, sample inputs, calibration feeds and labelled data.

    ``build(seed)`` returns the float model (the trained network ignores the seed).
    ``calibration(seed)`` yields feeds for quantisation; ``sample_input()`` is the feed of
    ``dla run``. ``dataset()`` returns held-out images (N, C, H, W) for the single input and labels
    (N,), or None. ``trained`` is False if the weights are drawn from the seed.
    """

    name: str
    description: str
    build: Callable[[int], ModelProto]
    calibration: Callable[[int], Iterator[Feeds]]
    sample_input: Callable[[], Feeds]
    dataset: Callable[[], Dataset | None] = lambda: None
    trained: bool = False


def _make_builder(place: str, **how: Any) -> Callable[[int], ModelProto]:
    """Return a function that builds a model from a seed by ``FILE.FUNCTION`` here."""
    module, _, name = place.partition(".")

    def build(seed: int) -> ModelProto:
        made: ModelProto = getattr(import_module(f"experiments.models.{module}"), name)(
            seed=seed, **how
        )
        return made

    return build


def _make_photograph_model(
    name: str,
    title: str,
    build: Callable[[int], ModelProto],
    size: int = 224,
    *,
    source: str = "image",
    crops: int,
) -> BuiltinModel:
    """Return an untrained built-in network that is calibrated on crops of a photograph.

    Its input ``source`` is the photograph at ``size``; calibration uses ``crops`` seeded crops.
    """
    return BuiltinModel(
        name,
        f"{title}, seeded weights",
        build,
        calibration=lambda seed: (
            {source: crop} for crop in inputs.photograph_crops(crops, seed, size)
        ),
        sample_input=lambda: {source: inputs.photograph(size)},
    )


def _light(name: str) -> BuiltinModel:
    # Input names of the files: the two families come from two exporters.
    source = "gpu_0/data_0" if name in ("resnet50", "shufflenet", "zfnet512") else "data_0"
    found = _make_photograph_model(
        f"light-{name}", "", _make_builder("light.light_model", name=name), source=source, crops=2
    )
    return replace(
        found, description=f"{light.LIGHT_NETWORKS[name][1]} (onnx package, seeded weights)"
    )


GPT2_PAST = 63
_SAMPLE = 1 << 20
"""Seed for the input of a run; no calibration uses it."""


def _make_seeded_model(
    name: str,
    title: str,
    build: Callable[[int], ModelProto],
    feeds: Callable[[int], Feeds],
    samples: int,
) -> BuiltinModel:
    """Return an untrained built-in network whose inputs ``feeds`` generates from seeds."""
    return BuiltinModel(
        name,
        f"{title}, seeded weights",
        build,
        calibration=lambda seed: (feeds(seed * samples + index) for index in range(samples)),
        sample_input=lambda: feeds(_SAMPLE),
    )


def _normal(name: str, shape: tuple[int, ...], seed: int) -> Feeds:
    return {name: np.random.default_rng(seed).standard_normal(shape, np.float32)}


def _tokens(words: int, count: int, seed: int) -> Feeds:
    return {"input_ids": np.random.default_rng(seed).integers(0, words, (1, count))}


def _draw_cached_token(blocks: int, seed: int) -> Feeds:
    """Return a random input token and random cached keys and values for every block.

    The cached values have variance one, like projections of normalised rows.
    """
    random = np.random.default_rng(seed)
    shape = (1, HEADS, GPT2_PAST, 64)
    names = [f"past_{part}_{index}" for index in range(blocks) for part in ("key", "value")]
    return {
        **_tokens(GPT2_WORDS, 1, seed),
        **{name: random.standard_normal(shape, np.float32) for name in names},
    }


def _luminance(seed: int, size: int = 224) -> Feeds:
    return {"image": np.roll(inputs.luminance(size), seed - _SAMPLE, axis=-1)}


def _video(seed: int) -> Feeds:
    return {"video": inputs.video(seed)}


def _pillars(seed: int) -> Feeds:
    """Return random PointPillars input features, zero in nine tenths of the places."""
    random = np.random.default_rng(seed)
    features = np.maximum(random.standard_normal((1, 64, 496, 432), np.float32), 0)
    return {"pillars": features * (random.random((496, 432)) < 0.1)}


def _wave(seed: int) -> Feeds:
    """Return a random audio signal of five tones with a little noise, from -1 to 1."""
    random = np.random.default_rng(seed)
    time = np.arange(2048) / 16_000
    tones = (
        np.sin(
            2 * np.pi * random.uniform(80, 4000, (5, 1)) * time + random.uniform(0, 6, (5, 1))
        ).sum(axis=0)
        / 6
    )
    wave = np.clip(tones + random.normal(0, 0.02, 2048), -1, 1)
    return {"wave": wave.astype(np.float32).reshape(1, 1, 2048)}


# The networks, in the order of `dla models`.

_MICRO = "of TensorFlow Lite for Microcontrollers"
_ALL = (
    BuiltinModel(
        "digits-cnn",
        "depthwise-separable CNN trained on 8x8 handwritten digits",
        build=lambda seed: digits.digits_model(),
        calibration=lambda seed: (
            {"image": image[np.newaxis]} for image in digits.calibration_digits()
        ),
        sample_input=lambda: {"image": digits.held_out_digits()[0][:1]},
        dataset=digits.held_out_digits,
        trained=True,
    ),
    _make_photograph_model(
        "mobilenet-v1",
        "MobileNetV1 1.0/224, 569 MMAC",
        _make_builder("classifiers.build_classifier", name="mobilenet-v1"),
        crops=PHOTOGRAPH_CROPS,
    ),
    _make_photograph_model(
        "resnet-8",
        "ResNet-8 of MLPerf Tiny, 32x32",
        _make_builder("classifiers.resnet_8"),
        32,
        crops=16,
    ),
    _make_photograph_model(
        "resnet-18",
        "ResNet-18, 224x224",
        _make_builder("classifiers.build_classifier", name="resnet-18"),
        crops=4,
    ),
    _make_photograph_model(
        "resnext-11",
        "ResNeXt-11, 16 groups, 32x32",
        _make_builder("classifiers.build_classifier", name="resnext-11"),
        32,
        crops=16,
    ),
    *(_light(name) for name in light.LIGHT_NETWORKS),
    *(
        _make_photograph_model(name, f"{title}, 224x224", build, crops=4)
        for name, title, build in (
            (
                "mobilenet-v2",
                "MobileNetV2 1.0, 0.30 GMAC",
                _make_builder("classifiers.build_classifier", name="mobilenet-v2"),
            ),
            (
                "mobilenet-v3-small",
                "MobileNetV3 small, 0.06 GMAC",
                _make_builder("classifiers.build_classifier", name="mobilenet-v3-small"),
            ),
            (
                "mobilenet-v3-large",
                "MobileNetV3 large, 0.22 GMAC",
                _make_builder("classifiers.build_classifier", name="mobilenet-v3-large"),
            ),
            (
                "efficientnet-b0",
                "EfficientNet-B0, 0.39 GMAC",
                _make_builder("classifiers.build_classifier", name="efficientnet-b0"),
            ),
            ("squeezenet", "SqueezeNet 1.1, 0.35 GMAC", _make_builder("classifiers.squeezenet")),
            (
                "shufflenet-v2",
                "ShuffleNetV2 1.0, 0.15 GMAC",
                _make_builder("classifiers.shufflenet_v2"),
            ),
            (
                "vit-tiny",
                "vision transformer (DeiT-Ti), 1.3 GMAC",
                _make_builder("sequences.vit_tiny"),
            ),
        )
    ),
    _make_photograph_model(
        "ssd-mobilenet-v1",
        "SSD with MobileNetV1, 1.2 GMAC, 300x300",
        _make_builder("detection.ssd_mobilenet_v1"),
        300,
        crops=4,
    ),
    _make_photograph_model(
        "yolo-v8n",
        "YOLOv8n, 4.4 GMAC, 640x640",
        _make_builder("detection.yolo_v8n"),
        640,
        source="images",
        crops=2,
    ),
    _make_photograph_model(
        "unet", "U-Net, 3.0 GMAC, 256x256", _make_builder("imaging.unet"), 256, crops=2
    ),
    _make_seeded_model(
        "point-pillars",
        "PointPillars behind its encoder, 34 GMAC, 496x432",
        _make_builder("detection.point_pillars"),
        _pillars,
        samples=2,
    ),
    _make_seeded_model(
        "super-resolution",
        "sub-pixel super-resolution, 224x224 to 672x672, 3.0 GMAC",
        _make_builder("imaging.super_resolution"),
        _luminance,
        samples=2,
    ),
    _make_seeded_model(
        "c3d", "C3D, 16 frames, 38 GMAC", _make_builder("classifiers.c3d"), _video, samples=2
    ),
    _make_seeded_model(
        "r2plus1d",
        "R(2+1)D with 18 layers, 16 frames, 41 GMAC",
        _make_builder("classifiers.r2plus1d"),
        _video,
        samples=2,
    ),
    *(
        _make_seeded_model(
            f"bert-{blocks}-{tokens}",
            f"BERT, {blocks} layers, {tokens} tokens",
            _make_builder("sequences.bert", blocks=blocks, tokens=tokens),
            partial(_tokens, BERT_WORDS, tokens),
            samples=4,
        )
        for blocks, tokens in ((2, 128), (2, 256), (12, 128), (12, 256))
    ),
    *(
        _make_seeded_model(
            f"gpt2-{blocks}",
            f"GPT-2, {blocks} block{'s' if blocks > 1 else ''}, one token behind {GPT2_PAST} "
            "cached",
            _make_builder("sequences.gpt2", blocks=blocks, past=GPT2_PAST),
            partial(_draw_cached_token, blocks),
            samples=4,
        )
        for blocks in (1, 12)
    ),
    _make_seeded_model(
        "lstm",
        "LSTM, 4 layers of 1,024, 100 steps",
        _make_builder("sequences.lstm"),
        partial(_normal, "sequence", (100, 1, 1024)),
        samples=2,
    ),
    _make_seeded_model(
        "lstm-small",
        "LSTM, 2 layers of 64, 10 steps",
        _make_builder("sequences.lstm", layers=2, hidden=64, steps=10),
        partial(_normal, "sequence", (10, 1, 64)),
        samples=4,
    ),
    _make_seeded_model(
        "wavenet",
        "dilated 1-D convolutions as in WaveNet, 1.3 GMAC",
        _make_builder("sequences.wavenet"),
        _wave,
        samples=4,
    ),
    _make_seeded_model(
        "autoencoder",
        "autoencoder of MLPerf Tiny, 0.26 MMAC",
        _make_builder("imaging.autoencoder"),
        partial(_normal, "spectrum", (1, 640)),
        samples=16,
    ),
    # For microcontrollers. Two more networks of MLPerf Tiny are above: resnet-8 and autoencoder.
    _make_photograph_model(
        "resnet-8-large",
        "ResNet-8 of MLPerf Tiny, large, 76 MMAC, 32x32",
        _make_builder("classifiers.resnet_8", width=40),
        32,
        crops=16,
    ),
    _make_photograph_model(
        "visual-wake-words",
        "visual wake words of MLPerf Tiny, 7.5 MMAC, 96x96",
        _make_builder("microcontrollers.visual_wake_words"),
        96,
        crops=16,
    ),
    _make_seeded_model(
        "person-detection",
        f"person detection {_MICRO}, 7.2 MMAC, 96x96",
        _make_builder("microcontrollers.person_detection"),
        partial(_luminance, size=96),
        samples=16,
    ),
    *(
        _make_seeded_model(
            name,
            title,
            _make_builder(f"microcontrollers.{name.replace('-', '_')}"),
            partial(_normal, "spectrum", shape),
            samples=16,
        )
        for name, title, shape in (
            ("keyword-spotting", "keyword spotting of MLPerf Tiny, 2.7 MMAC", (1, 1, 49, 10)),
            ("streaming-wake-word", "streaming wake word of MLPerf Tiny, 0.8 MMAC", (1, 40, 30, 1)),
            ("micro-speech", f"micro speech {_MICRO}, 0.3 MMAC", (1, 1, 49, 40)),
        )
    ),
)
MODELS: Mapping[str, BuiltinModel] = MappingProxyType({model.name: model for model in _ALL})
