"""Public names of a package whose modules load when a name is first used, so that naming the package costs nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(
    package: str, homes: Mapping[str, str], shown: Callable[[Any], Any] = lambda found: found
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of ``package``: the names of ``homes``, sorted, and nothing else.

    Each is ``shown`` of what is defined.

    ``homes`` says where each name is defined, ``module`` or, under another name, ``module:name``. Type checkers do not
    look here: the package imports the same names for them under TYPE_CHECKING.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module, _, defined = homes[name].partition(":")
        found = shown(getattr(import_module(module), defined or name))
        setattr(sys.modules[package], name, found)
        return found

    return get, lambda: sorted(homes)
