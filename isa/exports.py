"""Public names of a package, imported on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(
    package: str, homes: Mapping[str, str], shown: Callable[[Any], Any] = lambda found: found
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of ``package`` for lazily imported names.

    Type checkers ignore these functions; the package must import the same names under
    TYPE_CHECKING.

    Args:
        package: name of the package.
        homes: defining module of each public name, as ``module`` or, if it has another name there,
            ``module:name``.
        shown: function applied to each object before it is returned.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module, _, defined = homes[name].partition(":")
        found = shown(getattr(import_module(module), defined or name))
        setattr(sys.modules[package], name, found)
        return found

    return get, lambda: sorted(homes)
