"""Documents and command lines drawn from nothing: systems, sweeps, machines, pins, tuning logs.

This module shares no code with the functions that read the documents. Names and forms are written
down as a user would copy them from the guides, with additional values that nobody would give.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

TIMES = (
    "1us",
    "20us",
    "0.5us",
    "3ms",
    "7ns",
    "2s",
    "1000000s",
    0,
    1,
    3000,
    10**9,
    10**18,
    2**63 - 1,
    -5,
    "-1us",
    "us",
    "1 h",
    "1e3us",
    "nan",
    "inf",
    1.5,
    "",
    "9" * 30,
)
NAMES = (
    "a",
    "net",
    "=cmd|' /C calc'!A0",
    "a=b",
    "</script>",
    "[/b]",
    "cpu",
    "npu",
    "npu0",
    "",
    "é",
    "x" * 300,
    "a.b",
    "a,b",
)
MODELS = ("tiny.dla", "tiny.onnx", "digits-cnn", "none.onnx", "preset.toml", "../x.onnx", "", ".")
NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    16,
    63,
    64,
    65,
    1000,
    -1,
    10**6,
    2**31,
    2**63 - 1,
    0.5,
    1e-9,
    5e-324,
    1e308,
    "nan",
    "inf",
    "-inf",
)
PRESETS = ("balanced-64", "small", "seed-o64", "preset.toml", "none", "", "x.toml", "balanced-256")
SETTINGS = (
    "sram_bytes",
    "pe.ic",
    "pe.oc",
    "pe.ow",
    "sram_banks",
    "isa",
    "numerics",
    "bus_bytes",
    "dram_latency",
    "queue_depth",
    "post_lanes",
    "alignment",
    "ex_fill",
    "none",
    "outstanding_bursts",
    "burst_bytes",
)
POLICIES = (
    "fcfs",
    "priority",
    "round-robin",
    "edf",
    "least-laxity",
    "jit",
    "migration",
    "co-optimised",
    "none",
    "",
)
ENTRIES = ("", "[]", "{}", "true", "1979-05-27", '"x"', "[[1]]", "[1, 2", "'''", "0x10", "1_000")


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if value in ("nan", "inf", "-inf"):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


class _Draws:
    """Draws of usual values, and in some inputs now and then of odd ones."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.odd = rng.choice((0.0, 0.02, 0.02, 0.2))

    def one(self, usual: Sequence[Any], odd: Sequence[Any] = ()) -> Any:
        return self.rng.choice(odd if odd and self.rng.random() < self.odd else usual)

    def some(self, share: float, entries: dict[str, Callable[[], Any]]) -> dict[str, Any]:
        return {key: draw() for key, draw in entries.items() if self.rng.random() < share}

    def time(self) -> Any:
        return self.one(("1us", "5us", "20us", "0.5us", 3000, 700, "1ms"), TIMES)

    def count(self) -> Any:
        return self.one((1, 1, 2, 4), NUMBERS)

    def table(self, head: str, entries: dict[str, Any]) -> str:
        """A table of which keys are left out, doubled or have any value, now and then."""
        lines = []
        for key, value in entries.items():
            text = self.rng.choice(ENTRIES) if self.rng.random() < self.odd / 2 else _toml(value)
            lines += [f"{key} = {text}"] * self.one((1,), (0, 2))
        return "\n".join([head, *lines]) + "\n"


def system(folder: Path, rng: random.Random) -> None:
    """Write a system with up to three kinds of accelerators and four tasks."""
    draw = _Draws(rng)
    text = _system_head(draw)
    kinds = [
        draw.one((name,), NAMES) for name in ("npu", "dsp", "gpu")[: draw.one((1, 1, 2, 3), (0,))]
    ]
    text += "".join(_accelerator(draw, name) for name in kinds)
    names = [draw.one((name,), NAMES) for name in "abcd"[: draw.one((1, 2, 2, 3, 4), (0,))]]
    text += "".join(_task(draw, names, number, kinds) for number in range(len(names)))
    (folder / "drawn.toml").write_text(text, encoding="utf-8")


def _system_head(draw: _Draws) -> str:
    """Draw a system's own keys and its memory, processor and run."""
    text = draw.table(
        "",
        draw.some(
            0.2,
            {
                "name": lambda: draw.one(("s",), NAMES),
                "seed": draw.count,
                "clock_hz": lambda: draw.one((10**9, 10**6), NUMBERS),
            },
        ),
    )
    ports = draw.one(("shared", "private"), ("x",))
    text += draw.table(
        "[memory]",
        {
            "ports": ports,
            **draw.some(
                0.3,
                {
                    "bus_bytes": lambda: draw.one((4, 8, 16), NUMBERS),
                    "dram_latency": lambda: draw.one((20, 100), NUMBERS),
                    "grants": lambda: draw.one((1,) if ports == "shared" else (1, 2), NUMBERS),
                },
            ),
        },
    )
    text += draw.table(
        "[cpu]",
        draw.some(0.4, {"cores": draw.count, "speed": lambda: draw.one((1.0, 0.5, 2.5), NUMBERS)}),
    )
    return text + draw.table(
        "[run]",
        draw.some(
            0.6,
            {
                "policy": lambda: draw.one(POLICIES[:-2], POLICIES),
                "quantum": draw.time,
                "until": draw.time,
                "preempt": lambda: draw.one(("none", "layer", "tile"), ("x", 1)),
            },
        ),
    )


def _accelerator(draw: _Draws, name: Any) -> str:
    return draw.table(
        "[[accelerator]]",
        {
            "name": name,
            **draw.some(
                0.4,
                {
                    "preset": lambda: draw.one(PRESETS[:4], PRESETS),
                    "count": draw.count,
                    "parts": lambda: draw.one((1, 1, 2), NUMBERS),
                    "settings": lambda: {
                        draw.one(("sram_bytes",), SETTINGS): draw.one((65536, "64KiB"), NUMBERS)
                        for _ in range(2)
                    },
                },
            ),
        },
    )


def _task(draw: _Draws, names: Sequence[Any], number: int, kinds: Sequence[Any]) -> str:
    """Draw task ``number``: its work, its period or predecessor, and further keys."""
    where = [draw.one((*kinds, "cpu"), NAMES)]
    models = ("tiny.dla", "tiny.onnx")
    work: dict[str, Any] = draw.one(
        (
            {"model": draw.one(models, MODELS)},
            {"cpu": draw.time()},
            {
                "variants": [
                    {"model": draw.one(models, MODELS), "quality": draw.one((1.0, 2.5), NUMBERS)}
                    for _ in range(2)
                ]
            },
        ),
        ({}, {"model": "tiny.dla", "cpu": 1}, {"variants": []}),
    )
    after = {"after": [draw.one(names[:number] or ["a"], names)]}
    when = (
        after
        if number and draw.rng.random() < 0.4
        else {
            "period": draw.time(),
            **draw.some(0.2, {"jitter": draw.time, "offset": draw.time, "sporadic": draw.time}),
        }
    )
    return draw.table(
        "[[task]]",
        {
            "name": names[number],
            **work,
            **when,
            **draw.some(
                0.25,
                {
                    "deadline": draw.time,
                    "priority": lambda: draw.one((0, 1, 7), NUMBERS),
                    "overrun": lambda: draw.one(("queue", "skip"), ("x",)),
                },
            ),
            **({"on": where} if "cpu" not in work and draw.rng.random() < 0.3 else {}),
        },
    )


def machine(folder: Path, rng: random.Random) -> None:
    """A machine for hardware."""
    draw = _Draws(rng)
    sizes = (1, 2, 3, 64, 256, 0, -1, 65536, 2**32, 2**63 - 1, "x", 1.5)
    pe = {
        "ic": draw.one((4, 8), sizes),
        "oc": draw.one((4, 8, 16), sizes),
        "ow": draw.one((1, 2), sizes),
    }
    arch = draw.some(
        0.5,
        {
            "isa": lambda: draw.one(("v1", "v2", "v3", "v4"), ("v5", "v9", "", 4)),
            "sram_bytes": lambda: draw.one((65536, 524288), sizes),
            "sram_banks": lambda: draw.one((16, 8, 4), sizes),
            "alignment": lambda: draw.one((8, 16), sizes),
            "row_alignment": lambda: 1,
            "numerics": lambda: draw.one(("onnxruntime", "fixed"), ("x",)),
            "post_lanes": lambda: draw.one((8, 16), sizes),
        },
    )
    timing = draw.some(
        0.3,
        {
            name: lambda: draw.one((4, 8, 16), sizes)
            for name in ("bus_bytes", "dram_latency", "queue_depth", "ex_fill")
        },
    )
    head = draw.some(
        0.4,
        {
            "name": lambda: draw.one(("mine",), NAMES),
            "memory_mode": lambda: draw.one(("dram", "flash"), ("x",)),
        },
    )
    text = (
        draw.table("", head)
        + draw.table("[arch]", arch)
        + draw.table("[arch.pe]", pe)
        + draw.table("[timing]", timing)
    )
    (folder / "drawn.toml").write_text(text, encoding="utf-8")


_LAYER_VALUES: dict[str, tuple[Sequence[Any], Sequence[Any]]] = {
    "channels": ((1, 2, 3, 4, 8, 16), NUMBERS),
    "rows": ((1, 2, 3, 4, 8), NUMBERS),
    "depth": ((0, 1, 2, 3), NUMBERS),
    "order": (("rows", "channels"), ("x", "", 1, None)),
    "slots": (
        ([1, 1, 1], [2, 2, 2], [1, 2, 1], [3, 2, 2]),
        ([0, 1, 1], [1, 1], [2**40, 1, 1], "x", []),
    ),
}


def tuning_log(folder: Path, rng: random.Random) -> None:
    """Write a tuning log with other schedules, counts and heads.

    Some logs are like those of a search, others are not.
    """
    draw = _Draws(rng)
    head, *lines = [
        json.loads(line)
        for line in (folder / "tuning.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    if rng.random() < 0.5:
        lines = [json.loads(json.dumps(rng.choice(lines))) for _ in range(rng.randrange(6))]
    for number, line in enumerate(lines, start=1):
        line["measurement"] = draw.one((number,), NUMBERS)
        if rng.random() < 0.5:
            line["cycles"] = draw.one((1, 700, 10**6, 2**62), (None, *NUMBERS))
        if rng.random() >= draw.odd:
            measured = line["cycles"] is not None
            line["sites"] = [
                draw.one((0, 5, 10**9), NUMBERS) for _ in line["schedule"]["layers"] if measured
            ]
        for layer in line["schedule"]["layers"]:
            for key, (usual, odd) in _LAYER_VALUES.items():
                if rng.random() < 0.5:
                    layer[key] = draw.one(usual, odd)
        if rng.random() < 0.3:
            names = [draw.one(("c", "y", "x"), NAMES) for _ in range(rng.randrange(3))]
            line["schedule"]["residents"] = draw.one((names,), (None, "x", [1]))
        if rng.random() < 0.3:
            group = _group(
                draw, [one["layer"] for one in line["schedule"]["layers"]] * rng.randrange(1, 3)
            )
            line["schedule"]["groups"] = draw.one(([group],), ([{}], None, [group] * 50))
    for key in rng.sample(list(head), rng.choice((0, 0, 1))):
        same = isinstance(head[key], str) and key != "schema"
        head[key] = draw.one(NAMES if same else (head[key],), (None, 1, [], {}))
    texts = [json.dumps(line) for line in (head, *lines)]
    if rng.random() < draw.odd:
        texts.insert(
            rng.randrange(len(texts) + 1),
            rng.choice((texts[-1], "", "{", "[]", "null", "\x00", "é")),
        )
    (folder / "drawn.jsonl").write_text(
        "\n".join(texts) + rng.choice(("\n", "\n", "", "\n{")), encoding="utf-8"
    )


def _group(draw: _Draws, layers: list[str]) -> dict[str, Any]:
    return {"layers": layers, "rows": draw.one((0, 1, 4), NUMBERS)} | draw.some(0.5, {
        "kept": lambda: [draw.one(("c", "y"), NAMES)],
        "slots": lambda: draw.one((1, 2), NUMBERS),
        "channels": lambda: [draw.one((1, 8), NUMBERS) for _ in layers],
        "held": lambda: [draw.one((True, False), (1, None)) for _ in layers],
    })  # fmt: skip


def pins(folder: Path, rng: random.Random) -> None:
    """Pins of the layer that there is, and of some that there is not."""
    draw = _Draws(rng)
    names = [
        line
        for line in (folder / "pins.toml").read_text(encoding="utf-8").splitlines()
        if "[layers" in line
    ]
    text = draw.table("", draw.some(0.4, {"residents": lambda: [draw.one(("c", "y"), NAMES)]}))
    for name in [
        *names,
        *(
            f"[layers.{json.dumps(draw.one(('none',), NAMES))}]"
            for _ in range(rng.choice((0, 0, 1)))
        ),
    ]:
        values = draw.some(0.5, {
            key: lambda usual=usual,
            odd=odd: draw.one(usual, [one for one in odd if one is not None])
            for key, (usual, odd) in _LAYER_VALUES.items()
        })  # fmt: skip
        text += draw.table(name, values)
    (folder / "drawn.toml").write_text(text, encoding="utf-8")


_AXES: dict[str, tuple[Any, ...]] = {
    "pe.ic": (4, 8, [1, 4], [8, 8]), "pe.oc": (4, [4, 16], {"from": 1, "to": 8, "times": 2}),
    "sram_bytes": (65536, "64 KiB", [4096, 65536], {"from": "1 KiB", "to": "64 KiB", "times": 8}),
    "sram_banks": (4, [4, 16]), "post_lanes": (8, [4, 8]), "alignment": (8,),
}  # fmt: skip
_TIMES: dict[str, tuple[Any, ...]] = {
    "bus_bytes": (4, [4, 16]), "queue_depth": (1, [2, 4]),
    "dram_latency": ([1, 50], {"from": 10, "to": 50, "step": 20}),
}  # fmt: skip
_ODD_AXES = (
    [], {}, [[]], -1, 0, 1.5, "x", "64 XiB", [8, "x"], {"from": 1, "to": 2**62, "step": 1}, 2**62,
    {"from": 8, "to": 1},
    {"from": 1, "to": 9, "times": 1}, {"from": 1, "to": 9, "step": 0}, {"from": 1}, [True],
    list(range(1, 2000)),
)  # fmt: skip
_CONSTRAINTS = (
    "N = 16 or 64", "pe.count <= 64", "sram_bytes >= 4 * KiB", "bus_bytes in [4, 8, 16]",
    "not (N > 64)",
    "N // 3 >= 1 and schedule == 'default'", "sram_bytes % 2 == 0",
)  # fmt: skip
_ODD_CONSTRAINTS = (
    "", "N", "N = ", "N / 0 > 1", "N % 0 = 1", "((((N", "N == 'x'", "2 ** N > 1", "none < 3",
    "N < 1",
    "__import__('os')", "N * " * 3000 + "1 > 0", "(" * 500 + "N" + ")" * 500 + " > 0",
    "sram_bytes * 10**400 > 1", "'a' < N", "not " * 900 + "N",
)  # fmt: skip


def specification(folder: Path, rng: random.Random) -> None:
    """A sweep of a few points, now and then of very many or of none."""
    draw = _Draws(rng)
    usual = ("tiny.dla", "tiny.dla", "tiny.onnx")
    head: dict[str, Any] = {
        "networks": draw.one((["tiny.dla"], "tiny.onnx", list(set(usual))), ([], 1, *MODELS))
    }
    head |= draw.some(0.2, {
        "presets": lambda: [draw.one(("balanced-64", "preset.toml"), PRESETS)],
        "isa": lambda: draw.one(("v1", ["v2", "v3"]), ("v9", [], 1)),
        "schedules": lambda: draw.one((["seed", "default"], "seed"), ("x", [1])),
        "grouped": lambda: draw.one(("auto", ["cpu", "native"]), ("x", True)),
        "integer_io": lambda: draw.one((True, [True, False]), ("yes", 1)),
        "seed": draw.count,
        "cpu": lambda: draw.one((["Relu"], ["op:Conv"]), ("*", [1])),
        "constraints": lambda: [draw.one(_CONSTRAINTS, _ODD_CONSTRAINTS)
                                for _ in range(rng.choice((1, 1, 3)))],
        "shapes": lambda: {draw.one(("x",), NAMES): draw.one(([1, 3, 8, 8],), ([0], "x", [2**40]))},
        "calibration": lambda: draw.one(("samples.npz",), ("none.npz", "tiny.onnx")),
    })  # fmt: skip
    text = draw.table("", head)
    for name, axes in (("arch", _AXES), ("timing", _TIMES)):
        chosen = {
            key: draw.one(values, _ODD_AXES) for key, values in axes.items() if rng.random() < 0.3
        }
        if draw.rng.random() < draw.odd:
            chosen[rng.choice(SETTINGS)] = rng.choice(NUMBERS)
        text += draw.table(f"[{name}]", chosen)
    (folder / "drawn.toml").write_text(text, encoding="utf-8")


_SETTING_VALUES: dict[str, Sequence[Any]] = {
    "sram_bytes": ("64KiB", 65536, "1MiB", 1024), "pe.ic": (1, 4, 8), "pe.oc": (1, 4, 16),
    "pe.ow": (1, 2),
    "sram_banks": (1, 4, 16), "bus_bytes": (1, 4, 64), "dram_latency": (0, 20, 300),
    "queue_depth": (1, 2, 8),
    "post_lanes": (1, 4, 8), "alignment": (8, 16), "numerics": ("onnxruntime", "fixed"),
    "burst_bytes": (16, 64),
    "outstanding_bursts": (1, 4), "ex_fill": (0, 4, 100),
}  # fmt: skip
_ODD_VALUES = (
    0, -1, 2**31, 2**62, 2**63, "9" * 30, "", "none", "x", "1,2", "1.5", "64QiB", "-64KiB",
    "9" * 5000, "é", "=",
    "0x10", "1e3", " 4", "true",
)  # fmt: skip


def settings(rng: random.Random) -> list[str]:
    """A command line that changes a few keys of a machine."""
    draw = _Draws(rng)
    words = list(rng.choice((
        ("run", "tiny.dla"), ("emit", "tiny.dla"), ("partition", "tiny.dla"), ("run", "float.dla"),
        ("simulate", "tiny.prog", "--image", "0=zeros.bin"), ("rtl", "ports"),
        ("explain", "tiny.dla"),
    )))  # fmt: skip
    for _ in range(rng.choice((1, 1, 2, 4))):
        key = draw.one(tuple(_SETTING_VALUES), (*SETTINGS, *NAMES))
        words += ["--set", f"{key}={draw.one(_SETTING_VALUES.get(key, (1,)), _ODD_VALUES)}"]
    if rng.random() < 0.3 and words[0] != "simulate":
        words += ["--preset", draw.one(PRESETS[:4], PRESETS)]
    if rng.random() < 0.2:
        words += ["--isa", draw.one(("v1", "v2", "v3", "v4"), ("v9", "", "V1"))]
    if rng.random() < 0.2 and words[0] != "rtl":
        words += ["--memory-mode", draw.one(("dram", "flash", "sram"), ("x",))]
    return [word.replace("\x00", "") for word in words]
