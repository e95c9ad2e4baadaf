"""Calls of public Python functions with plausible keywords and implausible ones.

Two of three calls have only values of the right types, so that they pass the first type check.
"""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ANY: Sequence[Callable[[], Any]] = (
    lambda: None, lambda: True, lambda: 0, lambda: -1, lambda: 3, lambda: 2**70, lambda: 1.5,
    lambda: float("nan"),
    lambda: "", lambda: "x", lambda: "digits-cnn", lambda: "tiny.onnx", lambda: b"x",
    lambda: Path("tiny.onnx"), Path,
    list, lambda: ["conv"], lambda: [3], dict, lambda: {"image": None}, lambda: {"x": (1, 3, 8, 8)},
    lambda: {1: 2},
    tuple, object, lambda: print, lambda: np.zeros((1, 3, 8, 8), np.float32),
    lambda: np.ma.zeros((1, 3, 8, 8)),
    lambda: np.array("x"), lambda: np.array([None]), lambda: iter([1]), lambda: range(3),
    lambda: int, lambda: len,
    lambda: _recursive(), lambda: {"x": np.full((1, 3, 8, 8), np.nan, np.float32)},
    lambda: np.int64(2),
    lambda: "\ud800", lambda: "a\x00b", lambda: (lambda: None), lambda: (lambda *given: None),
    lambda: _Odd,
    lambda: _Odd(), lambda: {"x": _Odd()}, lambda: bytearray(3), lambda: complex(1, 2), lambda: {3},
    lambda: slice(2),
)  # fmt: skip
_IMAGE = np.zeros((1, 3, 8, 8), np.float32)
RIGHT: dict[str, Sequence[Any]] = {
    "preset": ("balanced-64", "preset.toml", Path("preset.toml"), "none", "", "tiny.onnx", ".",
               "x" * 5000),
    "settings": ({"pe.oc": 4}, {"sram_bytes": "64KiB"}, ["pe.ic=8"], {"none": 1}, {"pe.oc": 0},
                 {"pe.oc": 2**70}, ["x"], {"pe.oc": None}, {"pe.oc": 1.5}, ["=", "pe.oc"],
                 {"sram_bytes": "-1KiB"},
                 iter(["pe.oc=4"])),
    "isa": ("v1", "v2", "v4", "v9", "", None),
    "memory_mode": ("dram", "flash", "sram", "x", None),
    "inputs": ({"x": _IMAGE}, _IMAGE, _IMAGE.astype("i4"), "x.npy", Path("x.npz"), "x.png",
               {"y": _IMAGE}, {}, {"x": _IMAGE[0]}, [_IMAGE], np.zeros((0, 3, 8, 8), "f4"),
               {"x": _IMAGE.tolist()}, {"x": 3.0}, [], "none"),
    "shapes": ({"x": (1, 3, 8, 8)}, {"x": [2, 3, 8, 8]}, {"y": (1,)}, {"x": ()},
               {"x": (0, 3, 8, 8)}, {"x": (-1,)}, {"x": (1, 3, 2**40, 8)}, {"x": (2**70,)}, {},
               None),
    "fixed": ({"x": 0.5}, {"y": 1}, {"x": float("nan")}, {"x": 1e39}, {"": 0.0}, {}, None),
    "cpu": (["Relu"], ["op:Conv"], ("*",), ["["], [""], [], ["none"]),
    "calibration": ({"x": np.stack([_IMAGE])}, "samples.npz", {"x": _IMAGE}, {}, [],
                    [{"x": _IMAGE}], [_IMAGE, _IMAGE], iter([{"x": _IMAGE}]), [{}], [{"y": _IMAGE}],
                    {"x": np.zeros((0, 1, 3, 8, 8), "f4")}, "none.npz"),
    "quantise": ("auto", "minmax", "mse", "percentile", "x", ""),
    "accuracy": ("samples.npz", "x.npz", "none", "tiny.onnx"),
    "seed": (0, 1, 7, np.int64(3), -1, 2**31, 2**64, 2**70),
    "timeline": ("t.json", Path("t.json"), "x.txt", "none/t.json", "tiny.onnx", "."),
    "cost": ("horowitz-45nm", "cost.toml", "none", "", "tiny.onnx"),
    "schedule": ("seed", "default", "x"), "grouped": ("auto", "cpu", "native", "x"),
    "strict": (True, False), "integer_io": (True, False), "emulate_depthwise": (True, False),
    "cache": (True, False), "sensitivity": (True, False),
    "learn": (False,), "search_rate": (True, False), "check": (True, False),
    "retry_failed": (True, False),
    "engine": (print, len, _IMAGE.sum, dict, None, lambda *given: None,
               lambda hardware, progress: hardware),
    "progress": (lambda *given: None, print, lambda: None, int),
    "report": (lambda *given: None, print), "stage": (lambda *given: None, print),
    "watch": (None, lambda *given: None),
    "options": (),
    "measurements": (1, 2, 3, 0, -1), "search_seed": (0, 5, -1, 2**70),
    "log": ("new.jsonl", "tuning.jsonl", "x", "."),
    "donors": (["tuning.jsonl"], ["none"], ["tuning.jsonl"] * 3, [Path("tuning.jsonl")], []),
    "images": (1, 3, 0, -1, 2**40, 10**6, None),
    "policy": ("fcfs", "edf", "jit", "round-robin", "co-optimised", "migration", "x", None),
    "preempt": ("none", "layer", "tile", "x", None),
    "quantum": ("2us", 500, 0, -1, "x", "1e9s", 2**70),
    "until": ("20us", 5000, "1us", 0, -3, "x", "1000000s", 2**70),
    "output": ("new.sqlite", "net.sqlite", "x.txt", "none/x.sqlite", "tiny.onnx"),
    "workers": (0, -1), "scheduler": ("", "x", "tcp://127.0.0.1:1", "tcp://"),
    "model": ("tiny.onnx", "tiny.dla", Path("tiny.onnx"), "none", "", ".", "net.tflite", "x.npy",
              "digits-cnn"),
    "system": ("system.toml", Path("system.toml"), "none", {"task": []}, {}),
    "by": ("batch", "rows", "channels", "pipeline", "x"),
    "spec": ("system.toml", "spec.toml", {}, {"networks": ["tiny.dla"]}, "none",
             {"networks": "tiny.dla", "arch": {"pe.oc": [4]}},
             {"networks": ["tiny.dla"], "arch": {"sram_bytes": [2**70]}}),
    "axes": ({"run.policy": ["fcfs", "edf"]}, {"none": [1]}, {}, {"run.policy": []},
             {"run.policy": "fcfs"}, {"a.b.c": [1]}, {"memory.bus_bytes": [4, 8]},
             {"accelerator.npu.count": [1, 2]},
             {"memory.bus_bytes": range(1, 5)}),
    "path": ("net.sqlite", "run.json", "preset.toml", "tiny.dla", "none", "", "."),
    "name": ("balanced-64", "preset.toml", "none", ""),
}  # fmt: skip
"""By parameter: values of types that it takes, of which some cannot be done."""
CALLS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "run": ({"model": "tiny.onnx"}, (
        "preset", "settings", "isa", "memory_mode", "options", "inputs", "shapes", "fixed",
        "cpu",
        "calibration", "quantise", "accuracy", "seed", "timeline", "cost", "progress", "cache",
        "sensitivity", "schedule",
        "grouped", "strict",
        "integer_io", "emulate_depthwise", "engine",
    )),
    "import_model": ({"model": "tiny.onnx"},
                     ("shapes", "fixed", "cpu", "calibration", "quantise", "seed", "cache")),
    "tune": ({"model": "tiny.onnx", "measurements": 2, "learn": False, "log": "new.jsonl"}, (
        "preset", "settings", "isa", "measurements", "log", "search_seed", "learn", "donors",
        "seed", "report", "stage",
    )),
    "split": ({"model": "tiny.onnx", "system": "system.toml", "by": "batch"}, (
        "images", "inputs", "shapes", "seed", "options", "progress",
    )),
    "system": ({"spec": "system.toml", "until": "20us"}, (
        "policy", "preempt", "quantum", "until", "search_rate", "check", "watch",
    )),
    "sweep_system": ({"spec": "system.toml", "axes": {"run.policy": ["fcfs", "edf"]},
                      "until": "20us"}, (
        "policy", "preempt", "quantum", "until",
    )),
    "sweep": ({"spec": "spec.toml", "output": "new.sqlite", "workers": 1}, (
        "output", "scheduler", "retry_failed", "workers", "report",
    )),
    "load": ({"path": "net.sqlite"}, ("cost",)),
    "load_package": ({"path": "tiny.dla"}, ()),
    "load_report": ({"path": "run.json"}, ()),
    "load_hardware": ({"name": "preset.toml"}, ("settings", "isa", "memory_mode")),
    "compile": ({}, ("options", "progress", "schedule", "strict")),
}  # fmt: skip
"""By function: what it is given, and what it may be given."""
_WORK = ("run", "run", "tune", "system", "split", "sweep", "import_model", *CALLS)


class _TheirError(Exception):
    """A function of the caller's went wrong: that is theirs to mend, and not hidden from them."""


_HEARD = ("progress", "report", "stage", "watch")
"""What is a function of the caller's that only listens."""


def _listening(given: Any) -> Any:
    """``given``, or where it can be called, what says whose error it is that it ends with."""
    if not callable(given):
        return given

    def listen(*said: Any) -> Any:
        try:
            return given(*said)
        except Exception as error:
            raise _TheirError from error

    return listen


class _Odd:
    """Whatever is asked of it goes wrong."""

    def __len__(self) -> int:
        return -1

    def __fspath__(self) -> str:
        raise OSError("no path")


def _recursive() -> Any:
    found: list[Any] = []
    found.append(found)
    return found


def call(rng: random.Random) -> int:
    """Call a public function; bad input is an InputError of one line.

    What comes of it is shown and travels.
    """
    import dla

    name = rng.choice(_WORK)
    usual, keywords = CALLS[name]
    given = dict(usual)
    if name == "compile":
        given = {"package": dla.load_package("tiny.dla"), "arch": dla.load_hardware().arch}
    odd = rng.choice((0.0, 0.0, 0.3))
    for word in keywords:
        if rng.random() < 1.5 / max(len(keywords), 1):
            given[word] = (
                rng.choice(ANY)()
                if rng.random() < odd or not RIGHT[word]
                else rng.choice(RIGHT[word])
            )
    if rng.random() < 0.2:
        word = rng.choice(list(given))
        given[word] = (
            rng.choice(ANY)()
            if rng.random() < odd or not RIGHT.get(word)
            else rng.choice(RIGHT[word])
        )
    print(name, *(f"{word}={_shown(value)}" for word, value in given.items()))
    function = getattr(dla, name)
    given |= {word: _listening(given[word]) for word in _HEARD if word in given}
    try:
        found = (
            function(**given)
            if name in ("run", "tune", "system")
            else function(*_positional(usual, given), **given)
        )
    except _TheirError:
        return 0
    assert len(repr(found).splitlines()) <= 1 or name == "load"
    if name in ("run", "system"):
        pickle.loads(pickle.dumps(found))
    return 0


def _shown(value: Any) -> str:
    try:
        return repr(value)[:80].replace("\n", " ")
    except Exception as error:
        return type(error).__name__


def _positional(usual: dict[str, Any], given: dict[str, Any]) -> list[Any]:
    """Remove the positional arguments of the call from ``given`` and return them."""
    places = ("model", "spec", "axes", "system", "by", "path", "name", "package", "arch")
    first = [word for word in (*usual, "package", "arch") if word in places]
    return [given.pop(word) for word in first if word in given]
