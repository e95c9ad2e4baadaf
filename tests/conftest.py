"""Settings of all tests: side by side on all cores; Hypothesis judges results, never times, with the same examples."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=True)
settings.load_profile("project")

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # the cores are the workers'; NumPy reads it when it is imported, after this


os.environ["DLA_NO_CACHE"] = "1"  # every test imports its models; those of the cache say where theirs is


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """A worker a core; none where all arguments name files or tests: these then run at once, in this process."""
    if all(".py" in argument for argument in config.args):
        return 0
    return len(os.sched_getaffinity(0))
