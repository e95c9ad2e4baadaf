"""A tuning from a model to its best schedule: the workflow behind ``dla tune`` and the public Python API."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from byoc.options import DEFAULTS, CompileOptions
from dla_sim.presets import Settings, load_hardware
from experiments.running.given import Model, Samples, in_onnx, spelled
from experiments.running.network import Fixed, Shapes, load_network
from experiments.tune.run import Report, Tuned, Wanted
from experiments.tune.run import tune as tune_network
from isa.progress import Progress, silent


def tune(
    model: Model,
    *,
    preset: str | Path | None = None,
    settings: Settings = (),
    isa: str | None = None,
    memory_mode: str | None = None,
    options: CompileOptions = DEFAULTS,
    shapes: Shapes | None = None,
    fixed: Fixed | None = None,
    cpu: Sequence[str] = (),
    calibration: Samples | None = None,
    seed: int = 0,
    measurements: int = 200,
    log: str | Path | None = None,
    search_seed: int = 0,
    learn: bool = True,
    donors: Sequence[str | Path] = (),
    stage: Progress = silent,
    report: Report = lambda count, cycles: None,
    **choices: Any,
) -> Tuned:
    """Measure schedules of a network and keep them in a log, as ``dla tune`` does; what the log has stays.

    Model, machine, options and samples are as for ``run``. ``measurements`` in all, proposed from ``search_seed``,
    ranked by a learned model unless ``learn`` is False; ``log`` is by default ``runs/NETWORK-tuning.jsonl``, ``donors``
    are logs whose schedules are tried first. ``stage`` is called with what goes on, ``report`` with how many
    measurements there are and the fewest cycles. Raises InputError for bad input.
    """
    hardware = load_hardware(None if preset is None else str(preset), settings, isa, memory_mode)
    wanted = Wanted(measurements, search_seed, learn, tuple(map(Path, donors)))
    model = in_onnx(model)
    stage(f"reading {spelled(model)}")
    network = load_network(model, shapes, seed, calibration, fixed).keeping_on_cpu(cpu)
    place = Path(log) if log is not None else Path("runs") / f"{network.name}-tuning.jsonl"
    stage(f"tuning {network.name}")
    try:
        return tune_network(network, hardware, options.replaced(choices), place, wanted, report)
    except KeyboardInterrupt as stop:
        stop.add_note(f"stopped; what was measured stands in {place}, and the same command goes on there")
        raise
