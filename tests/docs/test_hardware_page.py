"""The page on the hardware has the contracts and ports of the sources, for all files."""

from __future__ import annotations

import re

from tests.docs.hardware import COMPONENTS, MARK, PAGE, ROOT, interface, written

TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_is_current() -> None:
    """Else run ``python -m tests.docs.hardware``."""
    assert written(TEXT) == TEXT


def test_every_component_has_its_place_once() -> None:
    assert sorted(name for _, name, _ in MARK.findall(TEXT)) == sorted(
        [*COMPONENTS, "Engine", "engines"]
    )


def test_ports_of_components_and_of_what_is_none() -> None:
    assert interface(COMPONENTS["Arbiter"]()) == (["`wants` 3"], ["`granted` 3"])
    inputs, outputs = interface(COMPONENTS["Slots"]())
    assert (inputs[0], outputs[0]) == ("`address` 32", "`beat`")


def test_every_file_of_the_hardware_is_on_the_page_and_every_test_exists() -> None:
    for path in (ROOT / "dla_sim/rtl").rglob("*.py"):
        if path.name != "__init__.py":
            assert f"{path.name}`" in TEXT, path
    tests = re.findall(r"`(tests/[\w/.]+)`", TEXT)
    assert tests
    for name in tests:
        assert (ROOT / name).is_file(), name
