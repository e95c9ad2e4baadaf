"""Public Python interface: run networks on a simulated deep-learning accelerator (docs/python.md).

:func:`run` runs one network on one machine, :class:`Session` a network with state step by step,
:func:`split` one network on several machines, and :func:`system` several networks on several
machines. :func:`sweep`, :func:`sweep_system`,
:func:`explore` and :func:`tune` try many machines, systems or schedules; :func:`load` reads their
results. :func:`import_model`, :func:`compile` and :class:`Device` run the steps one by one. Invalid
input raises an :class:`InputError` with a message of one line. The names load on first use.

The packages ``isa``, ``byoc``, ``dla_sim`` and ``experiments`` implement this interface. Their
names are common ones, so this package loads them from its own place, even if the working folder
contains packages with these names.
"""

from __future__ import annotations

import os
import signal
import sys


def _end_at_once() -> None:
    """Let the system end the command ``dla`` on Ctrl-C while it is imported.

    There is nothing to clean up yet. Other programs that import this package keep their signal
    handlers.
    """
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    command = name in ("dla", "dla.exe", "dla-script.py") or (
        name == "-m" and sys.orig_argv[1:3] == ["-m", "dla"]
    )
    if command and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


_end_at_once()  # before all other imports, which take longer

from importlib.machinery import PathFinder  # noqa: E402
from importlib.util import module_from_spec  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import TYPE_CHECKING  # noqa: E402

_BEHIND = ("isa", "byoc", "dla_sim", "experiments")
"""The packages in import order: each after the packages that it imports."""


def _home() -> Path:
    """Return the folder that contains the four Python packages of the simulator.

    It is the parent folder, or in a source tree the parent of ``experiments``.
    """
    folders = Path(__file__).resolve().parents
    for folder in (folders[1], folders[2]):
        if all((folder / name / "__init__.py").is_file() for name in _BEHIND):
            return folder
    raise ImportError(
        f"dla needs its packages {', '.join(_BEHIND)} beside it, in {folders[1]}; install it again"
    )


def _claim() -> None:
    """Import the four Python packages of the simulator from their own folder.

    Later imports then cannot find other packages with the same names.
    """
    home = _home()
    for name in _BEHIND:
        known = sys.modules.get(name)
        if known is not None:
            places = [str(Path(place).resolve()) for place in getattr(known, "__path__", ())]
            if places != [str(home / name)]:
                where = getattr(known, "__file__", None) or ", ".join(places)
                raise ImportError(
                    f"dla needs its own package '{name}', and {where} has been imported under "
                    "that name; rename that, or import dla first"
                )
            continue
        spec = PathFinder.find_spec(name, [str(home)])
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ != "dla":
    raise ImportError(f"{__name__} is installed as dla; write 'import dla'")
_claim()

if TYPE_CHECKING:
    from byoc.compiled import CompiledNetwork
    from byoc.compiler import compile
    from byoc.options import CompileOptions
    from byoc.package.package import Package, load_package, save_package
    from dla.loading import load
    from dla_sim.device import Device
    from dla_sim.engine.times import DeadlockError
    from dla_sim.prepared import HazardError
    from dla_sim.presets import Preset, load_hardware, preset_names
    from dla_sim.timing import Timing
    from experiments.advise.advice import Advice, advise
    from experiments.explore.exploration import Exploration
    from experiments.explore.exploring import explore
    from experiments.generation.generating import Generation, generate
    from experiments.models import MODELS
    from experiments.release import __version__
    from experiments.report.schema import RunReport
    from experiments.report.store import load_report
    from experiments.running.inference import import_model, run
    from experiments.running.result import Result
    from experiments.running.session import Session
    from experiments.sweep.session import Swept, sweep
    from experiments.systems.report import SystemReport
    from experiments.systems.requested import split, sweep_system, system
    from experiments.systems.result import SystemResult
    from experiments.systems.split import SplitReport
    from experiments.systems.sweep import SystemSweep
    from experiments.tune.tuning import Tuned, tune
    from isa.errors import (
        DoesNotFitError,
        InputError,
        MissingExtraError,
        PluginError,
    )
else:
    from isa.exports import lazily

    def _present(found):
        from experiments.running.wording import present

        return present(found)

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "Advice": "experiments.advise.advice",
            "CompileOptions": "byoc.options",
            "CompiledNetwork": "byoc.compiled",
            "DeadlockError": "dla_sim.engine.times",
            "Device": "dla_sim.device",
            "DoesNotFitError": "isa.errors",
            "Exploration": "experiments.explore.exploration",
            "Generation": "experiments.generation.generating",
            "HazardError": "dla_sim.prepared",
            "InputError": "isa.errors",
            "MODELS": "experiments.models",
            "MissingExtraError": "isa.errors",
            "Package": "byoc.package.package",
            "PluginError": "isa.errors",
            "Preset": "dla_sim.presets",
            "Result": "experiments.running.result",
            "RunReport": "experiments.report.schema",
            "Session": "experiments.running.session",
            "SplitReport": "experiments.systems.split",
            "Swept": "experiments.sweep.session",
            "SystemReport": "experiments.systems.report",
            "SystemResult": "experiments.systems.result",
            "SystemSweep": "experiments.systems.sweep",
            "Timing": "dla_sim.timing",
            "Tuned": "experiments.tune.tuning",
            "__version__": "experiments.release",
            "advise": "experiments.advise.advice",
            "compile": "byoc.compiler",
            "explore": "experiments.explore.exploring",
            "generate": "experiments.generation.generating",
            "import_model": "experiments.running.inference",
            "load": "dla.loading",
            "load_hardware": "dla_sim.presets",
            "load_package": "byoc.package.package",
            "load_report": "experiments.report.store",
            "preset_names": "dla_sim.presets",
            "run": "experiments.running.inference",
            "save_package": "byoc.package.package",
            "split": "experiments.systems.requested",
            "sweep": "experiments.sweep.session",
            "sweep_system": "experiments.systems.requested",
            "system": "experiments.systems.requested",
            "tune": "experiments.tune.tuning",
        },
        _present,
    )

__all__ = [
    "MODELS", "Advice", "CompileOptions", "CompiledNetwork", "DeadlockError", "Device",
    "DoesNotFitError", "Exploration", "Generation", "HazardError", "InputError",
    "MissingExtraError", "Package", "PluginError", "Preset", "Result", "RunReport", "Session",
    "SplitReport", "Swept", "SystemReport", "SystemResult", "SystemSweep", "Timing", "Tuned",
    "__version__", "advise", "compile", "explore", "generate", "import_model", "load",
    "load_hardware", "load_package", "load_report",
    "preset_names", "run", "save_package", "split", "sweep", "sweep_system", "system", "tune",
]  # fmt: skip
