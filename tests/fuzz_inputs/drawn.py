"""Inputs drawn from nothing: systems, tuning logs, caches, machines and calls of Python, in a vocabulary of their own.

What is read them by shares no code with this: names and forms are written down here, as a user would from the guides,
with values beside them that nobody would give.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

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
POLICIES = ("fcfs", "priority", "round-robin", "edf", "least-laxity", "jit", "migration", "co-optimised", "none", "")
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
    """Draws what somebody would write, and in some inputs now and then what nobody would."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self._odd = rng, rng.choice((0.0, 0.02, 0.02, 0.2))

    def one(self, usual: Sequence[Any], odd: Sequence[Any] = ()) -> Any:
        return self.rng.choice(odd if odd and self.rng.random() < self._odd else usual)

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
            text = self.rng.choice(ENTRIES) if self.rng.random() < self._odd / 2 else _toml(value)
            lines += [f"{key} = {text}"] * self.one((1,), (0, 2))
        return "\n".join([head, *lines]) + "\n"


def system(folder: Path, rng: random.Random) -> None:
    """A system with up to three kinds of accelerators and four tasks."""
    draw = _Draws(rng)
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
        "[cpu]", draw.some(0.4, {"cores": draw.count, "speed": lambda: draw.one((1.0, 0.5, 2.5), NUMBERS)})
    )
    text += draw.table(
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
    kinds = [draw.one((name,), NAMES) for name in ("npu", "dsp", "gpu")[: draw.one((1, 1, 2, 3), (0,))]]
    for name in kinds:
        text += draw.table(
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
                            draw.one(("sram_bytes",), SETTINGS): draw.one((65536, "64KiB"), NUMBERS) for _ in range(2)
                        },
                    },
                ),
            },
        )
    names = [draw.one((name,), NAMES) for name in "abcd"[: draw.one((1, 2, 2, 3, 4), (0,))]]
    models = ("tiny.dla", "tiny.onnx")
    for number, name in enumerate(names):
        where = [draw.one((*kinds, "cpu"), NAMES)]
        work: dict[str, Any] = draw.one(
            (
                {"model": draw.one(models, MODELS)},
                {"cpu": draw.time()},
                {
                    "variants": [
                        {"model": draw.one(models, MODELS), "quality": draw.one((1.0, 2.5), NUMBERS)} for _ in range(2)
                    ]
                },
            ),
            ({}, {"model": "tiny.dla", "cpu": 1}, {"variants": []}),
        )
        after = {"after": [draw.one(names[:number] or ["a"], names)]}
        when = (
            after
            if number and rng.random() < 0.4
            else {
                "period": draw.time(),
                **draw.some(
                    0.2,
                    {
                        "jitter": draw.time,
                        "offset": draw.time,
                        "sporadic": draw.time,
                    },
                ),
            }
        )
        text += draw.table(
            "[[task]]",
            {
                "name": name,
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
                **({"on": where} if "cpu" not in work and rng.random() < 0.3 else {}),
            },
        )
    (folder / "drawn.toml").write_text(text, encoding="utf-8")


def machine(folder: Path, rng: random.Random) -> None:
    """A machine for hardware."""
    draw, sizes = _Draws(rng), (1, 2, 3, 64, 256, 0, -1, 65536, 2**32, 2**63 - 1, "x", 1.5)
    pe = {"ic": draw.one((4, 8), sizes), "oc": draw.one((4, 8, 16), sizes), "ow": draw.one((1, 2), sizes)}
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
        {name: lambda: draw.one((4, 8, 16), sizes) for name in ("bus_bytes", "dram_latency", "queue_depth", "ex_fill")},
    )
    head = draw.some(
        0.4, {"name": lambda: draw.one(("mine",), NAMES), "memory_mode": lambda: draw.one(("dram", "flash"), ("x",))}
    )
    text = (
        draw.table("", head) + draw.table("[arch]", arch) + draw.table("[arch.pe]", pe) + draw.table("[timing]", timing)
    )
    (folder / "drawn.toml").write_text(text, encoding="utf-8")


def tuning_log(folder: Path, rng: random.Random) -> None:
    """A log of which values are others: in its head, or in what was measured."""
    draw = _Draws(rng)
    lines = [json.loads(line) for line in (folder / "tuning.jsonl").read_text(encoding="utf-8").splitlines()]
    odd = (None, 1, 0, -1, 2.5, "x", [], {}, [1], {"a": 1}, 2**63 - 1, "9" * 400, True)
    for line in lines[rng.randrange(2) :]:
        for _ in range(rng.randrange(3)):
            _change(line, draw, odd)
    texts = [json.dumps(line) for line in lines]
    if rng.random() < 0.3:
        texts.insert(
            rng.randrange(len(texts) + 1), rng.choice((texts[-1], texts[0], "", "{", "[]", "null", "\x00", "é"))
        )
    (folder / "drawn.jsonl").write_text("\n".join(texts) + rng.choice(("\n", "", "\n\n")), encoding="utf-8")


def _change(value: Any, draw: _Draws, odd: Sequence[Any]) -> None:
    """Another value somewhere in it."""
    while isinstance(value, dict | list) and value:
        key = draw.rng.choice(list(value) if isinstance(value, dict) else range(len(value)))
        if draw.rng.random() < 0.4 or not isinstance(value[key], dict | list):
            old = value[key]
            near = (old + 1, old - 1, old * 2) if isinstance(old, int) else (old,)
            value[key] = draw.one(near, odd) if draw.rng.random() < 0.7 else draw.rng.choice(odd)
            return
        value = value[key]


def cache(folder: Path, rng: random.Random) -> None:
    """A folder that is called a cache: with a whole entry, and things of others in the places of its files."""
    place = folder / "cache"
    for path in sorted(place.iterdir()):
        match rng.randrange(9):
            case 0:
                content = bytearray(path.read_bytes())
                for _ in range(rng.choice((1, 3, 50))):
                    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
                path.write_bytes(content)
            case 1:
                path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])
            case 2:
                path.unlink()
                os.mkfifo(path)
            case 3:
                path.unlink()
                path.mkdir()
            case 4:
                path.unlink()
                path.symlink_to(rng.choice((path.name, "/dev/zero", "../tiny.onnx", "absent")))
            case 5:
                path.chmod(rng.choice((0, 0o400, 0o777)))
            case _:
                pass
    for name in ("z.package", ".0123456789abcdef.part", "rtl", "secret", "notes", "f" * 64 + ".package"):
        if rng.random() < 0.2 and not (place / name).exists() and not (place / name).is_symlink():
            rng.choice(
                (
                    lambda path: path.write_bytes(rng.randbytes(rng.randrange(200))),
                    os.mkfifo,
                    Path.mkdir,
                    lambda path: path.symlink_to("/dev/zero"),
                )
            )(place / name)
    if rng.random() < 0.1:
        place.chmod(rng.choice((0o777, 0o500, 0o700)))


VALUES: Sequence[Callable[[], Any]] = (
    lambda: None,
    lambda: True,
    lambda: 0,
    lambda: -1,
    lambda: 3,
    lambda: 2**70,
    lambda: 1.5,
    lambda: float("nan"),
    lambda: "",
    lambda: "x",
    lambda: "digits-cnn",
    lambda: "tiny.onnx",
    lambda: b"x",
    lambda: Path("tiny.onnx"),
    lambda: Path(),
    list,
    lambda: ["conv"],
    lambda: [3],
    dict,
    lambda: {"image": None},
    lambda: {"x": (1, 3, 8, 8)},
    lambda: {1: 2},
    lambda: (),
    lambda: object(),
    lambda: print,
    lambda: np.zeros((1, 3, 8, 8), np.float32),
    lambda: np.ma.zeros((1, 3, 8, 8)),
    lambda: np.array("x"),
    lambda: np.array([None]),
    lambda: iter([1]),
    lambda: range(3),
    lambda: int,
    lambda: _recursive(),
    lambda: {"x": np.full((1, 3, 8, 8), np.nan, np.float32)},
    lambda: np.int64(2),
    lambda: "\ud800",
    lambda: "a\x00b",
)
CALLS: dict[str, tuple[tuple[Any, ...], tuple[str, ...]]] = {
    "run": (
        ("tiny.onnx",),
        (
            "preset",
            "settings",
            "isa",
            "memory_mode",
            "options",
            "host",
            "inputs",
            "shapes",
            "fixed",
            "cpu",
            "calibration",
            "accuracy",
            "seed",
            "timeline",
            "cost",
            "progress",
            "cache",
            "schedule",
            "grouped",
            "strict",
            "integer_io",
            "emulate_depthwise",
        ),
    ),
    "import_model": (("tiny.onnx",), ("shapes", "fixed", "cpu", "calibration", "seed", "cache")),
    "tune": (
        ("tiny.onnx",),
        ("preset", "settings", "isa", "measurements", "log", "search_seed", "learn", "donors", "seed"),
    ),
    "split": (("tiny.onnx", "system.toml", "batch"), ("images", "host", "inputs", "shapes", "seed", "options")),
    "system": (("system.toml",), ("policy", "preempt", "quantum", "until", "search_rate", "check", "watch")),
    "sweep_system": (("system.toml", {"run.policy": ["fcfs", "edf"]}), ("policy", "preempt", "quantum", "until")),
    "sweep": (("spec.toml",), ("output", "scheduler", "retry_failed")),
    "load": (("net.sqlite",), ("cost",)),
    "load_package": (("tiny.dla",), ()),
    "load_report": (("run.json",), ()),
    "load_hardware": (("preset.toml",), ("settings", "isa", "memory_mode")),
    "compile": ((), ("options", "progress", "schedule", "strict")),
}


def _recursive() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


def call(rng: random.Random) -> int:
    """Call a public function with some keywords of any type; bad input is an InputError of one line."""
    import dla

    name = rng.choice(list(CALLS))
    positional, keywords = CALLS[name]
    given: list[Any] = list(positional)
    if name == "compile":
        given = [dla.load_package("tiny.dla"), dla.load_hardware().arch]
    named = {word: rng.choice(VALUES)() for word in keywords if rng.random() < 1.5 / max(len(keywords), 1)}
    if not named or rng.random() < 0.2:
        given[rng.randrange(len(given))] = rng.choice(VALUES)()
    if name in ("system", "sweep_system"):
        named.setdefault("until", "20us")
    found = getattr(dla, name)(*given, **named)
    assert repr(found)
    return 0
