"""Numba's cache: it notices constants that another file defines."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from dla_sim.jit import compile_cached


@pytest.mark.parametrize(
    ("limit", "values"), [("LIMIT", (1, 2)), ("len(LIMIT)", (("a",), ("a", "b")))]
)
def test_a_changed_constant_of_another_file_is_compiled_again(
    limit: str, values: tuple[object, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "cached.py"
    file.write_text(f"LIMIT = 0\n\n\ndef limit():\n    return {limit}\n")
    spec = spec_from_file_location("cached", file)
    assert spec is not None
    assert spec.loader is not None
    for number, hits in ((1, 0), (2, 0), (1, 1)):
        module = module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "cached", module)
        spec.loader.exec_module(module)
        module.LIMIT = values[number - 1]  # as an import from a file that defines it
        found = compile_cached(module.limit)
        assert found() == number
        assert sum(found.stats.cache_hits.values()) == hits
