"""Code that numba compiles, loaded on demand: it requires the extra ``fast`` and time to load.

It returns the bits of the NumPy code that it replaces: integers are exact, and each float32
operation is rounded once, in source order.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

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

    Raises InputError if numba is not installed or does not work.
    """
    try:
        import numba  # noqa: F401

        from dla_sim.kernels import stepping
    except ImportError as error:
        told = f"compiled kernels need numba; install it with: {remedy('fast')}"
        raise MissingExtraError(told) from error
    return Compiled(
        stepping.run_steps, stepping.GROUP, max(positions for _, positions in stepping.SIZES)
    )


def has_compiled() -> bool:
    """Return True if the code that numba compiles can be loaded; load it."""
    try:
        load_compiled()
    except MissingExtraError:
        return False
    return True
