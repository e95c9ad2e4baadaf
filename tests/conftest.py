"""Settings of all tests: parallel on all cores, and Hypothesis with fixed examples.

Hypothesis judges results and never times.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    # the cores are the workers'; NumPy reads it when it is imported, after this
    os.environ.setdefault(_name, "1")


def _open_front_door() -> None:
    """Use this tree's ``dla``, like the packages behind it, instead of an installed one."""
    folder = Path(__file__).parents[1] / "experiments" / "dla"
    spec = spec_from_file_location(
        "dla", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["dla"] = module_from_spec(spec)
    spec.loader.exec_module(module)


_open_front_door()

# a shell lets background jobs ignore it, and tests send it
signal.signal(signal.SIGINT, signal.default_int_handler)

# executables of hardware from one file of C++: a quarter less work
os.environ["MAKEFLAGS"] = "VM_PARALLEL_BUILDS=0"
# every test imports its models; those of the cache say where theirs is
os.environ["DLA_NO_CACHE"] = "1"


@pytest.fixture(scope="session")
def compiler() -> None:
    """Skips where there is no C++ compiler, or no make."""
    if shutil.which("make") is None or not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("a C++ compiler or make is missing: install the Debian packages g++ and make")


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker a core.

    None where all arguments name files or tests: these then run at once, in this process.
    """
    if all(".py" in argument for argument in config.args):
        return 0
    return len(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def _no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print no line of progress, however slow the computer is.

    Only tests that import commands pay for it.
    """
    if options := sys.modules.get("experiments.cli.options"):
        monkeypatch.setattr(options, "PROGRESS_SECONDS", 1e6)


LONGEST = (
    "docs/test_docs.py", "cycles/test_cycles.py", "byoc/test_pairs.py", "e2e/test_user_tasks.py",
    "experiments/test_generate.py", "experiments/test_browser_layout.py",
    "byoc/test_every_reason.py", "dla_sim/rtl/test_hardware.py", "docs/test_blocks.py",
    "experiments/test_advise.py", "e2e/test_networks_of_words.py", "experiments/test_tune.py",
    "fuzz_inputs/test_fuzz_inputs.py", "byoc/test_flags.py", "e2e/test_index_networks.py",
    "byoc/test_resizes.py", "e2e/test_answer_tasks.py", "byoc/test_tvm_hook.py",
    "byoc/bare_metal/test_bundles.py", "e2e/test_mutations.py",
    "e2e/test_onnx_backend_nodes.py",
)  # fmt: skip
"""Files that take the most processor time, longest first; quick tests of each take 10 s or more.

``test_rotation.py`` fails if a file does not exist.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest files first, then files with slow tests.

    A worker gets whole files, and the last one should not be long.
    """
    tests = Path(__file__).parent
    ranks = {tests / name: rank for rank, name in enumerate(LONGEST)}
    slow = {item.path for item in items if "slow" in item.keywords}
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), item.path not in slow))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable garbage collection during test collection, and freeze the tests afterwards.

    Tests exist until the end, so the garbage collector need not visit them, 0.4 s each time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
