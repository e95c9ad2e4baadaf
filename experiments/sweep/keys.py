"""The key of a point: a content hash of everything that its row depends on."""

from __future__ import annotations

import hashlib

from experiments.sweep.canonical import canonical
from experiments.sweep.grid import Batch

DIGITS = 32


class Keys:
    """Keys of the points of one batch: ``of(timing)`` for each of its timings, as canonical JSON."""

    def __init__(self, batch: Batch, package: str, version: str) -> None:
        options = canonical(batch.options.choices)
        self.arch = canonical(batch.arch)
        self._begun = hashlib.sha256("\n".join((package, self.arch, options, version, "")).encode())

    def of(self, timing: str) -> str:
        """First 32 hexadecimal digits of the SHA-256 of package digest, Arch, options, version and Timing."""
        whole = self._begun.copy()
        whole.update(timing.encode())
        return whole.hexdigest()[:DIGITS]
