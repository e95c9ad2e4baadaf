"""The machine of docs/machine.md once more, one step per clock cycle: the oracle of the
event-driven engines.

It shares no code with ``dla_sim``: it was written from the document and from ``isa`` alone.
"""

from tests.dla_sim.tick.model import TickResult, run_ticks

__all__ = ["TickResult", "run_ticks"]
