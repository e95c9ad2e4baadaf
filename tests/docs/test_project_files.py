"""The README is short, and every file that states the version states the same one."""

from __future__ import annotations

import re
import tomllib

from tests.docs.session import ROOT

MOST_README_LINES = 125
"""A reader needs three minutes for as many."""
MOST_RELEASE_LINES = 80
"""Lines of one version in the changelog."""


def _text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_readme_stays_short() -> None:
    assert len(_text("README.md").splitlines()) <= MOST_README_LINES


def test_versions_agree() -> None:
    version = tomllib.loads(_text("pyproject.toml"))["project"]["version"]
    assert re.findall(r"^version: (.+)$", _text("CITATION.cff"), re.MULTILINE) == [version]
    assert re.findall(r"^## (\S+)", _text("CHANGELOG.md"), re.MULTILINE)[0] == version


def test_a_version_of_the_changelog_stays_short() -> None:
    for section in re.split(r"^(?=## )", _text("CHANGELOG.md"), flags=re.MULTILINE)[1:]:
        assert len(section.splitlines()) <= MOST_RELEASE_LINES, section.splitlines()[0]
