"""Canonical JSON: equal values give equal texts, so that texts can be compared, hashed and stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def canonical(values: Mapping[str, Any]) -> str:
    """Sorted keys, no spaces."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"))
