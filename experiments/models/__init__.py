"""The built-in networks by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from experiments.models import digits, inputs, light, networks

if TYPE_CHECKING:
    from onnx import ModelProto

Feeds = dict[str, NDArray[np.float32]]
Dataset = tuple[NDArray[np.float32], NDArray[np.int64]]

PHOTOGRAPH_CROPS = 16


@dataclass(frozen=True)
class BuiltinModel:
    """A network that comes with the package: how to build it, feed it, calibrate it and, where labels exist, judge it.

    ``build(seed)`` makes the float model (the trained network has no use for the seed). ``calibration(seed)`` yields
    feeds for quantisation; ``sample_input()`` is the feed of ``dla run``; ``dataset()`` gives held-out images
    (N, C, H, W) for the single input and labels (N,), or None.
    """

    name: str
    description: str
    build: Callable[[int], ModelProto]
    calibration: Callable[[int], Iterator[Feeds]]
    sample_input: Callable[[], Feeds]
    dataset: Callable[[], Dataset | None] = lambda: None


def _crops(input_name: str, size: int, count: int, seed: int) -> Iterator[Feeds]:
    return ({input_name: crop} for crop in inputs.photograph_crops(count, seed, size))


def _photographed(
    name: str,
    description: str,
    build: Callable[[int], ModelProto],
    size: int = 224,
    *,
    source: str = "image",
    crops: int,
) -> BuiltinModel:
    """A network without training that looks at the photograph and is calibrated on ``crops`` seeded crops of it."""
    return BuiltinModel(
        name,
        description,
        build,
        calibration=partial(_crops, source, size, crops),
        sample_input=lambda: {source: inputs.photograph(size)},
    )


def _light(name: str) -> BuiltinModel:
    # As the files call their input; the two families come from two exporters.
    source = "gpu_0/data_0" if name in ("resnet50", "shufflenet", "zfnet512") else "data_0"
    description = f"{light.LIGHT_NETWORKS[name][1]} (onnx package, seeded weights)"
    return _photographed(f"light-{name}", description, partial(light.light_model, name), source=source, crops=2)


def _digits() -> BuiltinModel:
    return BuiltinModel(
        "digits-cnn",
        "depthwise-separable CNN trained on 8x8 handwritten digits",
        build=lambda seed: digits.digits_model(),
        calibration=lambda seed: ({"image": image[np.newaxis]} for image in digits.calibration_digits()),
        sample_input=lambda: {"image": digits.held_out_digits()[0][:1]},
        dataset=digits.held_out_digits,
    )


def _all() -> Iterator[BuiltinModel]:
    yield _digits()
    yield _photographed(
        "mobilenet-v1",
        "MobileNetV1 1.0/224, 569 MMAC, seeded weights",
        networks.mobilenet_v1,
        crops=PHOTOGRAPH_CROPS,
    )
    yield _photographed("resnet-8", "ResNet-8 of MLPerf Tiny, 32x32, seeded weights", networks.resnet_8, 32, crops=16)
    yield _photographed("resnet-18", "ResNet-18, 224x224, seeded weights", networks.resnet_18, crops=4)
    description = "ResNeXt-11, 16 groups, 32x32, seeded weights"
    yield _photographed("resnext-11", description, networks.resnext_11, 32, crops=16)
    yield from (_light(name) for name in light.LIGHT_NETWORKS)


MODELS: Mapping[str, BuiltinModel] = MappingProxyType({model.name: model for model in _all()})
