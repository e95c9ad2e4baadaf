"""The machine of docs/machine.md, one step per clock cycle, as oracle of the engines.

It shares no code with ``dla_sim``: it was written from the document and from ``isa`` alone.
"""

from tests.dla_sim.tick.model import TickResult, run_ticks

__all__ = ["TickResult", "run_ticks"]
