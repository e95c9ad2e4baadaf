"""Code that numba compiles, loaded on demand: it requires the extra ``fast`` and time to load.

It returns the bits of the NumPy code that it replaces: integers are exact, and each float32
operation is rounded once, in source order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from isa.errors import MissingExtraError
from isa.installation import remedy


@dataclass(frozen=True, eq=False)
class Compiled:
    """Compiled function that runs a table of steps, and the limits of such a table.

    ``group`` is the number of input elements that a step multiplies, ``positions`` the largest
    number of positions of a tile.
    """

    run_steps: Callable[..., None]
    group: int
    positions: int


@cache
def load_compiled() -> Compiled:
    """Return the code that numba compiles.

    The first call compiles it, later processes read numba's cache.

    Raises InputError if numba is not installed.
    """
    if find_spec("numba") is None:
        raise MissingExtraError(f"compiled kernels need numba; install it with: {remedy('fast')}")
    from dla_sim.kernels import stepping

    return Compiled(
        stepping.run_steps, stepping.GROUP, max(positions for _, positions in stepping.SIZES)
    )
