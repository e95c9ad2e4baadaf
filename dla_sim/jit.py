"""Compilation by numba, with numba's cache on disk. It needs the extra ``fast``."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any


def compile_cached(function: Callable[..., Any], *signatures: str, **options: Any) -> Any:
    """Return a function as numba compiles it; later processes read numba's cache.

    Numba notices changes of the function's file, but not of constants that the file imports. The
    name in the cache therefore has a digest of the module's constants: numbers, and lengths of
    tuples.
    """
    import numba

    numbers = sorted(
        (name, len(value) if isinstance(value, tuple) else value)
        for name, value in function.__globals__.items()
        if name.isupper() and isinstance(value, int | float | tuple)
    )
    function.__qualname__ += "_" + sha256(repr(numbers).encode()).hexdigest()[:16]
    njit: Any = numba.njit  # its types do not know options by name
    try:
        return njit(*signatures, error_model="numpy", cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache is writable
        return njit(*signatures, error_model="numpy", **options)(function)
