"""Find the files that one convolution and ``dla run mobilenet-v1`` enter.

A file is entered when one of its functions or class bodies runs in a fresh process; an import alone
does not count. ``python -m tests.docs.entered`` counts and prints the files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("isa", "byoc", "dla_sim", "experiments")
Entered = Mapping[str, frozenset[str]]
"""By file, from the root, the names of the functions and classes that ran."""

MOST = {"convolution": 128, "mobilenet": 133}
"""The most files that each may enter.

As many as there are, so whoever gets there with fewer lowers them.
"""


@contextmanager
def watched() -> Iterator[dict[str, set[str]]]:
    """Record the files and functions that are entered inside this context."""
    found: dict[str, set[str]] = defaultdict(set)
    folders = {f"{ROOT / package}{os.sep}" for package in PACKAGES}
    start = len(str(ROOT)) + 1
    seen = set()

    def enter(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code in seen:
            return
        seen.add(code)
        if not code.co_name.startswith("<") and code.co_filename.startswith(tuple(folders)):
            found[code.co_filename[start:]].add(code.co_qualname)

    sys.setprofile(enter)
    try:
        yield found
    finally:
        sys.setprofile(None)


def convolution() -> dict[str, dict[str, set[str]]]:
    """Return what a float convolution enters during import, compilation and a default run."""
    import numpy as np

    from byoc.compiler import compile
    from byoc.host.runtime import Runtime
    from byoc.importing import import_model
    from dla_sim.device import Device
    from experiments.models.builder import NetworkBuilder
    from isa.arch import Arch, PeArray

    net = NetworkBuilder("convolution", "image", (1, 3, 16, 16), 0)
    model = net.model(net.convolution("y", "image", (3, 8), 3, bias=0.0), (1, 8, 16, 16))
    image = np.random.default_rng(0).standard_normal((1, 3, 16, 16), np.float32)
    arch = Arch(isa="v4", pe=PeArray(ic=4, oc=16))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "convolution.onnx")
        file.write_bytes(model.SerializeToString())
        with watched() as imported:
            package = import_model(file, calibration=iter([{"image": image}]))
    with watched() as compiled:
        network = compile(package, arch)
    with watched() as run:
        ran = Runtime(network, Device(arch)).run({"image": image})
        cycles = sum(sum(trace.kinds.values()) for trace in ran.traces.values())
    assert cycles > 0
    return {"import": imported, "compile": compiled, "device": run}


def mobilenet() -> dict[str, dict[str, set[str]]]:
    """Return what ``dla run mobilenet-v1`` enters if its package is in the cache."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {key: value for key, value in os.environ.items() if key != "DLA_NO_CACHE"}
        os.environ.pop("DLA_NO_CACHE", None)
        os.environ["DLA_CACHE_DIR"] = environment["DLA_CACHE_DIR"] = folder
        report = Path(folder, "report.json")
        arguments = ["run", "mobilenet-v1", "--json", str(report)]
        command = [sys.executable, "-m", "experiments.cli.main", *arguments]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
        report.unlink()
        sys.argv = ["dla", *arguments]
        with watched() as found:
            from experiments.cli.main import main

            with suppress(SystemExit):
                main()
        assert report.exists()
    return {"all": found}


SUBJECTS: Mapping[str, Callable[[], dict[str, dict[str, set[str]]]]] = {
    "convolution": convolution,
    "mobilenet": mobilenet,
}


@cache
def entered(subject: str) -> Mapping[str, Entered]:
    """Return what a subject enters by phase and in ``all``, counted in a fresh process."""
    command = [sys.executable, "-m", "tests.docs.entered", subject]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    phases = json.loads(done.stdout.splitlines()[-1])
    found = {
        phase: {file: frozenset(names) for file, names in files.items()}
        for phase, files in phases.items()
    }
    together: dict[str, frozenset[str]] = {}
    for files in found.values():
        for file, names in files.items():
            together[file] = together.get(file, frozenset()) | names
    return {**found, "all": together}


def main(arguments: list[str]) -> None:
    """Print the counts and the files; with a subject what it enters, as JSON."""
    if arguments:
        phases = SUBJECTS[arguments[0]]()
        print()
        print(
            json.dumps(
                {
                    phase: {file: sorted(files[file]) for file in files}
                    for phase, files in phases.items()
                }
            )
        )
        return
    for subject in SUBJECTS:
        for phase, files in entered(subject).items():
            print(f"{subject}, {phase}: {len(files)} files", flush=True)
    print("\n".join(sorted(entered("convolution")["all"])))


if __name__ == "__main__":
    main(sys.argv[1:])
