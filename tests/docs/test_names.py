"""Files, symbols, commands and links that the docs name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import onnx
import pytest

from experiments.cli.main import COMMANDS, get_command
from tests.docs.blocks import blocks
from tests.docs.session import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = [page for page in PAGES if page.exists()]
WRITTEN = [page for page in PAGES if page.name not in ("isa.md", "support.md", "style.md")]
"""Pages that are not generated as a whole; the names in the style guide are examples."""
FOLDERS = ("isa", "byoc", "dla_sim", "experiments", "tests", "benchmarks", "docs", "examples")
SOURCES = {".py", ".txt", ".toml", ".cpp", ".sv", ".v", ".js", ".csv", ".h", ".vh"}
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FOREIGN = {
    # Keys of Vela.
    *("OffChipFlash_burst_length", "OffChipFlash_max_reads", "OffChipFlash_read_latency"),
    *("Dedicated_Sram", "Shared_Sram", "Sram_Only"),
    *("key_padding_mask", "opset_version"),  # parameters of PyTorch
    # Verilog modules: the build composes their names.
    *("lane_division", "lane_subtraction", "lane_unary", "rows_reducelane", "rows_softmaxlane"),
}
"""Names that look like names of this project's sources, but are not."""


def _prose(page: Path) -> str:
    """Return a page without fenced blocks and generated tables, which other tests check."""
    text = re.sub(
        r"^( *)```.*?^\1```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    return re.sub(r"<!-- tests\.docs\.\w+ \w+ -->.*?<!-- end -->", "", text, flags=re.DOTALL)


def _named(page: Path) -> Iterator[str]:
    """Yield the texts in backticks."""
    yield from (found.strip() for found in CODE.findall(_prose(page)))


@cache
def _files() -> dict[str, list[Path]]:
    """Return the project's files by name."""
    found: dict[str, list[Path]] = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "generated" not in path.parts:
                found.setdefault(path.name, []).append(path)
    return found


@cache
def _sources() -> Mapping[Path, str]:
    """Return the texts of all sources."""
    paths = [path for found in _files().values() for path in found if path.suffix in SOURCES]
    return {path: path.read_text(encoding="utf-8") for path in paths}


@cache
def _words() -> frozenset[str]:
    """Return all words of the sources."""
    return frozenset(word for text in _sources().values() for word in re.findall(r"\w+", text))


def _exists(name: str) -> bool:
    return any(ROOT.glob(name)) if set(name) & set("*?[") else (ROOT / name).exists()


def _is_symbol(name: str) -> bool:
    """True if a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return part in getattr(found, "__dataclass_fields__", {}) or part in getattr(
                    found, "model_fields", {}
                )
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_files_that_a_page_names_exist(page: Path) -> None:
    own = {block.file for block in blocks(page.read_text(encoding="utf-8"))}
    places = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./*?-]*")
    wrong = [name for name in _named(page) if places.fullmatch(name) and not _exists(name)]
    wrong += [
        name for name in _named(page)
        if re.fullmatch(r"[\w-]+\.(?:py|cpp|sv)", name) and name not in _files() and name not in own
    ]  # fmt: skip
    assert wrong == []


@pytest.mark.parametrize("page", WRITTEN, ids=[page.name for page in WRITTEN])
def test_symbols_that_a_page_names_exist(page: Path) -> None:
    dotted = re.compile(
        r"((?:isa|byoc|dla_sim|experiments|tests|benchmarks|dla)(?:\.\w+)+)(?:\(.*\))?"
    )
    plain = re.compile(
        r"(\w*[a-z]_\w+|[A-Z][A-Z0-9]*_\w+|[A-Z][a-z0-9]+[A-Z]\w*)(?:\.(\w+))?(?:\(\))?"
    )
    own = set(
        re.findall(
            r"\w+", " ".join(block.text for block in blocks(page.read_text(encoding="utf-8")))
        )
    )
    known = _words() | own | FOREIGN | {schema.name for schema in onnx.defs.get_all_schemas()}
    wrong = [
        found[1]
        for name in _named(page)
        if (found := dotted.fullmatch(name)) and not _is_symbol(found[1])
    ]
    wrong = [name for name in wrong if not any(f'"{name}"' in text for text in _sources().values())]
    for name in _named(page):
        found = plain.fullmatch(name)
        wrong += [part for part in (found.groups() if found else ()) if part and part not in known]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_commands_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    modules = set(re.findall(r"python3? -m ((?:tests|benchmarks|experiments)[\w.]*)", text))
    assert [name for name in modules if find_spec(name) is None] == []
    wrong = []
    for name, below in re.findall(r"`dla ([a-z]+)(?: ([a-z]+))?[^`\n]*`", _prose(page)):
        group = (
            getattr(get_command(name), "registered_commands", None) if name in COMMANDS else None
        )
        names = {one.name or one.callback.__name__ for one in group} if group else {below}
        if name not in COMMANDS or (below and below not in names):
            wrong.append(f"dla {name} {below}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_of_a_page_lead_to_files_and_headings(page: Path) -> None:
    wrong = []
    for link in LINK.findall(_prose(page)):
        target, _, anchor = link.partition("#")
        place = (page.parent / target).resolve() if target else page
        if "://" in link or link.startswith("mailto:"):
            continue
        if not place.exists() or (
            anchor and place.suffix == ".md" and anchor not in _anchors(place)
        ):
            wrong.append(link)
    assert wrong == []


@cache
def _anchors(page: Path) -> frozenset[str]:
    """Return the anchors that GitHub and the site give to the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)


def test_pages_that_sources_name_exist() -> None:
    place = re.compile(r"\bdocs/[\w/-]+\.(?:md|svg|png|csv|txt|h|vh)\b")
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in _sources().items()
        for name in place.findall(text)
        if not (ROOT / name).exists()
    ]
    assert wrong == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8").split()
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"}
    assert pages - set(index) == set()
