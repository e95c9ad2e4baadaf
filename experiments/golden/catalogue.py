"""Cases to record: programs of levels 0, 1, 2 and 10, and networks.

The current compiler compiles the networks. ``cases.zip`` has programs as assembly text, so that
every version encodes them itself, with their inputs; ``python -m tests.golden_cases`` makes it.
Networks are compiled when the corpus is recorded, and their programs are stored. Calibration runs
in float on the local CPU, so scales may differ in the last bit between CPUs. A check runs the
stored program on the stored input and does not depend on that.
"""

import json
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from onnx import ModelProto

from byoc.host.runtime import region_inputs
from byoc.importing import import_model
from byoc.options import CompileOptions
from dla_sim.presets import Preset, load_hardware
from dla_sim.timing import Timing
from experiments.golden.case import GoldenCase
from experiments.golden.store import Reader
from experiments.models.builder import NetworkBuilder
from experiments.running.inference import infer
from experiments.running.network import Network, load_network, network_feeds
from isa.assembler import assemble
from isa.plugins import variant
from isa.program import Segment

CASES = Path(__file__).with_name("cases.zip")
INDEX = "cases.json"
"""Member of :data:`CASES` with the cases; the other members are contents by digest."""
NETWORKS = "networks"


def catalogue(levels: Collection[str] = ()) -> Iterator[GoldenCase]:
    """Yield the built-in golden cases of ``levels``, ordered by level.

    Empty ``levels`` are all levels. Each case is built when it is needed.
    """
    yield from _load_cases(
        one for one in _documents() if not levels or one["name"].partition("/")[0] in levels
    )
    if not levels or NETWORKS in levels:
        yield from _networks()


def find_built_in_case(name: str) -> GoldenCase | None:
    """Return the built-in golden case ``name``, or None if there is none.

    If ``name`` omits the level, the first case with that name is returned. Networks are found only
    by their full name.
    """
    level, separator, _ = name.partition("/")
    if separator and level == NETWORKS:
        return next((case for case in _networks() if case.name == name), None)
    wanted = (one for one in _documents() if name in (one["name"], one["name"].partition("/")[2]))
    return next(_load_cases(wanted), None)


@cache
def _documents() -> tuple[dict[str, Any], ...]:
    with zipfile.ZipFile(CASES) as archive:
        return tuple(json.loads(archive.read(INDEX)))


def _load_cases(documents: Iterable[Mapping[str, Any]]) -> Iterator[GoldenCase]:
    reader = Reader(CASES.parent, (CASES.name,))
    for one in documents:
        images = one.get("images", {}).items()
        segments = (
            Segment(int(at), np.frombuffer(reader.content(place), np.uint8)) for at, place in images
        )
        program = replace(assemble(one["assembly"], one["name"]), segments=tuple(segments))
        inputs = {name: reader.content(place) for name, place in one.get("inputs", {}).items()}
        timing = Timing.model_validate(one.get("timing", {})).model_dump()
        words = (
            np.array([int(word, 16) for word in one["words"]], np.uint64)
            if "words" in one
            else None
        )
        yield GoldenCase(one["name"], one["description"], program, inputs, timing, words=words)


@dataclass(frozen=True)
class Recipe:
    """A network compiled for a machine; on v1 depthwise convolutions are emulated.

    With ``contents``, the result of every command is stored, else only its checksum.
    """

    model: str
    preset: str = "balanced-64"
    isa: str = "v2"
    numerics: Literal["onnxruntime", "fixed"] = "onnxruntime"
    schedule: Literal["seed", "default"] = "default"
    contents: bool = True

    @property
    def name(self) -> str:
        parts = [self.model, self.preset, self.isa, self.schedule]
        return f"{NETWORKS}/" + "-".join([*parts, "fixed"] if self.numerics == "fixed" else parts)


RECIPES = (
    Recipe("digits-cnn"),
    Recipe("digits-cnn", numerics="fixed"),
    Recipe("digits-cnn", "seed-i64", "v1", schedule="seed"),
    Recipe("digits-cnn", "seed-o128", "v2", schedule="seed"),
    Recipe("digits-cnn", "nvdla-small-like", "v3"),
    Recipe("resnet-8"),
    Recipe("resnet-8", numerics="fixed"),
    Recipe("resnet-8", "seed-i64", "v1", schedule="seed", contents=False),
    Recipe("thin-mobilenet", isa="v3"),
    Recipe("thin-mobilenet", isa="v3", numerics="fixed"),
    Recipe("thin-mobilenet", "seed-i64", "v1", schedule="seed"),
)


def _networks() -> Iterator[GoldenCase]:
    """Compile the networks of :data:`RECIPES` and yield one golden case per region.

    Each network is one region here.
    """
    networks: dict[str, Network] = {}
    for recipe in RECIPES:
        if recipe.model not in networks:
            networks[recipe.model] = _network(recipe.model)
        yield from _cases(recipe, networks[recipe.model])


def _network(name: str) -> Network:
    if name != "thin-mobilenet":
        return load_network(name)
    return Network(name, import_model(thin_mobilenet(), name))


def _cases(recipe: Recipe, network: Network) -> Iterator[GoldenCase]:

    hardware: Preset = load_hardware(recipe.preset, [f"numerics={recipe.numerics}"], recipe.isa)
    options = CompileOptions(
        schedule=recipe.schedule,
        emulate_depthwise="OP_DEPTH_CONV" not in variant(recipe.isa).mnemonics,
    )
    done = infer(network, hardware, network_feeds(network), options)
    for index, program in done.compiled.programs.items():
        inputs = {
            name: data.tobytes()
            for name, data in region_inputs(program, done.result.values).items()
        }
        name = recipe.name if len(done.compiled.programs) == 1 else f"{recipe.name}-region{index}"
        text = (
            f"{recipe.model} on {recipe.preset}, {recipe.isa}, numerics {recipe.numerics}, "
            f"schedule {recipe.schedule}"
        )
        yield GoldenCase(name, text, program, inputs, hardware.timing.model_dump(), recipe.contents)


def thin_mobilenet() -> ModelProto:
    """Return a few MobileNet blocks with a residual sum and a grouped convolution.

    They need all of v3. The input has shape (1, 3, 32, 32).
    """

    net = NetworkBuilder("thin-mobilenet", "image", (1, 3, 32, 32), 0)

    layer = net.layer
    value = layer("first", "image", (3, 12), 3, 2)
    short = layer("pointwise1", layer("depthwise1", value, (12, 12), 3, groups=12), (12, 20), 1)
    value = layer("grouped", short, (20, 20), 3, groups=4)
    value = net.node("Add", "sum", value, short)
    value = layer("pointwise2", layer("depthwise2", value, (20, 20), 3, 2, groups=20), (20, 36), 1)
    value = net.node("AveragePool", "average", value, kernel_shape=[2, 2], strides=[2, 2])
    value = net.node("GlobalAveragePool", "pool", value)
    value = net.node("Flatten", "flatten", value, axis=1)
    return net.model(net.add_fully_connected("logits", value, (36, 10)), (1, 10))
