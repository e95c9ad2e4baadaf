"""A tuning from a model to its best schedule: the workflow behind ``dla tune`` and the public Python API."""

from __future__ import annotations

from pathlib import Path

from experiments.running.door import door
from experiments.running.network import load
from experiments.running.workflow import hardware_of
from experiments.tune.request import TuneKeywords, TuneRequest
from experiments.tune.run import Tuned
from experiments.tune.run import tune as tune_network


def tune_requested(wanted: TuneRequest) -> Tuned:
    """Measure schedules of a network and keep them in a log, as ``dla tune`` does; what the log has stays.

    Model, machine, options and samples are as for ``run``. ``measurements`` in all, proposed from ``search_seed``,
    ranked by a learned model unless ``learn`` is False; ``log`` is by default ``runs/NETWORK-tuning.jsonl``, ``donors``
    are logs whose schedules are tried first. ``stage`` is called with what goes on, ``report`` with how many
    measurements there are and the fewest cycles. Raises InputError for bad input.
    """
    hardware = hardware_of(wanted)
    network = load(wanted, wanted.stage)
    place = Path(wanted.log) if wanted.log is not None else Path("runs") / f"{network.name}-tuning.jsonl"
    wanted.stage(f"tuning {network.name}")
    try:
        return tune_network(network, hardware, wanted.options, place, wanted, wanted.report)
    except KeyboardInterrupt as stop:
        stop.add_note(f"stopped; what was measured stands in {place}, and the same command goes on there")
        raise


tune = door("tune", TuneKeywords, TuneRequest, tune_requested)
