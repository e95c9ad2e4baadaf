"""Seeding faults one at a time into a copy of the packages, and checking a corpus with each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults.fault import Fault

PACKAGES = ("isa", "dla_sim", "byoc", "experiments")
SECONDS = 300
"""A check that takes longer hangs, which counts as caught."""


@dataclass(frozen=True)
class Finding:
    """Result of a check with a fault.

    ``level`` is the first level with a difference, or ``import`` for packages that do not even
    load, ``refused`` for a check that ends with exit status 2, ``hang``; "" if nothing was found.
    ``case`` and ``aspects`` are those of the first case that differs.
    """

    fault: Fault
    level: str = ""
    case: str = ""
    aspects: tuple[str, ...] = ()
    message: str = ""

    @property
    def caught(self) -> bool:
        """True when the check did not pass."""
        return bool(self.level)

    @property
    def right(self) -> bool:
        """True when the fault was caught, or changes nothing and was not."""
        return self.caught != bool(self.fault.equivalent)


def missed_text(findings: Iterable[Finding]) -> str:
    """The sentence on the faults that no check detects."""
    names = [finding.fault.name for finding in findings if not finding.right]
    listed = f" ({', '.join(names)})" if names else ""
    return f"Missed faults: {len(names)}{listed}."


def seed_all(corpus: Path, faults: Iterable[Fault], jobs: int) -> Iterator[Finding]:
    """The finding of each fault, in order, ``jobs`` at a time.

    Raises InputError for a fault that fits no source.
    """
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(partial(seed, corpus), faults)


def seed(corpus: Path, fault: Fault) -> Finding:
    """Check ``corpus`` with ``fault`` in a copy of the packages, in a process of its own."""
    with copied_packages() as folder:
        fault.apply(folder)
        return check_with(folder, corpus.resolve(), fault)


@contextmanager
def copied_packages() -> Iterator[Path]:
    """Yield a temporary folder with a copy of the four packages.

    It includes compiled modules, because loading is most of a check.
    """
    with tempfile.TemporaryDirectory(prefix="dla-fault-") as name:
        folder = Path(name)
        for package in PACKAGES:
            module = sys.modules[package] if package in sys.modules else __import__(package)
            origin = Path(str(module.__file__)).parent
            shutil.copytree(origin, folder / package)
        yield folder


def check_with(folder: Path, corpus: Path, fault: Fault) -> Finding:
    """Run ``dla golden check`` with the packages in ``folder`` and read its outcome."""
    outcome = folder / "outcome.json"
    command = [sys.executable, "-m", "experiments.cli.main", "golden", "check", str(corpus)]
    # No bytecode: two versions of a file may have one size and one second.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    run = partial(
        subprocess.run, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    try:
        done = run([*command, "--fail-fast", "--json", str(outcome)])
    except subprocess.TimeoutExpired:
        return Finding(fault, "hang")
    last = (done.stderr.strip().splitlines() or [""])[-1]
    if done.returncode == 0:
        return Finding(fault)
    if done.returncode == 2 or not outcome.exists():
        return Finding(fault, "refused" if done.returncode == 2 else "import", message=last)
    found = next(case for case in json.loads(outcome.read_bytes())["cases"] if not case["passed"])
    aspects = tuple(dict.fromkeys(item["aspect"] for item in found["differences"]))
    return Finding(
        fault,
        found["case"].partition("/")[0],
        found["case"],
        aspects,
        found["differences"][0]["summary"],
    )
