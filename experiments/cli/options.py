"""The options that commands share: declared once, so that they read and behave the same everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Schedule(StrEnum):
    """How the compiler orders the work: the published system's way, or everything this compiler can do."""

    seed = "seed"
    default = "default"


class GroupedChoice(StrEnum):
    """How grouped convolutions run."""

    auto = "auto"
    cpu = "cpu"
    per_group = "per-group"
    native = "native"


class HostChoice(StrEnum):
    """What runs the nodes that stay on the CPU."""

    onnxruntime = "onnxruntime"
    reference = "reference"


Model = Annotated[str, typer.Argument(metavar="MODEL", help="An .onnx or .dla file, or a built-in name (dla models).")]
Preset = Annotated[str, typer.Option("--preset", metavar="NAME|FILE.toml", help="Hardware to start from.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key of the hardware, e.g. pe.oc=64. Repeatable."),
]
Isa = Annotated[str | None, typer.Option("--isa", metavar="v1|v2|v3|…", help="ISA variant, instead of the preset's.")]
ScheduleOption = Annotated[
    Schedule, typer.Option("--schedule", help="seed: the published system; default: all we can.")
]
Emulate = Annotated[
    bool, typer.Option("--emulate-depthwise", help="Run depthwise convolutions on OP_CONV, one filter at a time.")
]
Grouped = Annotated[
    GroupedChoice,
    typer.Option(
        "--grouped", help="Grouped convolutions: on the CPU, one OP_CONV a group, OP_GROUP_CONV, or auto: the fastest."
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Any node that falls back to the CPU is an error.")]
Host = Annotated[HostChoice, typer.Option("--host", help="What runs the nodes on the CPU.")]
Input = Annotated[
    Path | None,
    typer.Option("--input", metavar="FILE", help="Network input: .npy, .npz or an image. Default: the model's sample."),
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape", metavar="NAME=1,3,224,224", help="Shape of an input that the model leaves open. Repeatable."
    ),
]
Calibration = Annotated[
    Path | None,
    typer.Option(
        "--calibration",
        metavar="FILE.npz",
        help="What to quantise a float model on: an array for each input, samples along an extra first axis.",
    ),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of weights, calibration and inputs that are drawn.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")]
Timeline = Annotated[
    Path | None, typer.Option("--trace", metavar="FILE.json", help="Write a timeline that Perfetto opens.")
]
Cost = Annotated[
    str | None,
    typer.Option("--cost", metavar="NAME|FILE.toml", help="Estimate energy and area by this cost table."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where the result goes.")]

DEFAULT_PRESET = "balanced-64"
