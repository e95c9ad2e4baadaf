"""Public names of a package: imported on first use, or kept for one version after a rename."""

from __future__ import annotations

import sys
import warnings
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


def make_getattr(module: str, renamed: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for ``module`` that finds objects by their old names.

    Args:
        module: name of the module.
        renamed: objects by old name; each has its new name as ``__name__``.

    Returns:
        A function that warns with DeprecationWarning and returns the object, and raises
        AttributeError for other names.
    """

    def find_renamed(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        found = renamed[name]
        message = f"{module}.{name} is now {found.__name__}; the old name works in 0.2 only"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return found

    return find_renamed
