"""Manifests: what made the rows of a results file, so that anyone can make them again."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from experiments.sweep.preparation import Preparation
from experiments.sweep.spec import Spec
from experiments.version import tool_version

_LIBRARIES = ("numpy", "onnx", "onnxruntime", "pydantic", "simpy")


def make_manifest(spec: Spec, points: int, command: str, networks: Mapping[str, Preparation]) -> tuple[str, str]:
    """(digest, JSON text) of the manifest of a sweep; equal sweeps have equal ones.

    Keys: ``command`` that made it, ``specification`` (the text of the file) and ``folder`` (where its paths start
    from), ``points``, ``versions`` of the project, Python and libraries, ``packages`` (digest of each network).
    """
    content: dict[str, Any] = {
        "format": "dla-sweep",
        "command": command,
        "specification": spec.text,
        "folder": str(spec.folder.resolve()),
        "points": points,
        "versions": versions(),
        "packages": {name: network.package.digest for name, network in networks.items()},
    }
    text = json.dumps(content, sort_keys=True, indent=1)
    return hashlib.sha256(text.encode()).hexdigest(), text


def versions() -> dict[str, str]:
    """Versions of what the figures depend on."""
    found = {"dla-byoc-simulator": tool_version(), "python": platform.python_version(), "machine": platform.machine()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found
