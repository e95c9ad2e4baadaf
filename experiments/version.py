"""The version that reports, results and manifests carry."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def tool_version() -> str:
    """Version of the installed distribution, ``unknown`` where it runs without being installed."""
    try:
        return version("dla-byoc-simulator")
    except PackageNotFoundError:
        return "unknown"
