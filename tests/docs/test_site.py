"""The documentation site is built without a warning, and every link within it leads somewhere.

Links to other sites are not followed: no test asks the network.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.session import ROOT


class _Page(HTMLParser):
    """Links, images and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Reads one element."""
        found = dict(attrs)
        self.anchors |= {name for name in (found.get("id"), found.get("name")) if name}
        self.links += [link for link in (found.get("href"), found.get("src")) if link is not None]


def _dead_links(site: Path) -> Iterator[str]:
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (path.parent / unquote(url.path)).resolve() if url.path else path
            if not target.is_file():
                yield f"{path.relative_to(site)}: {link}: no such file"
            elif target in pages and unquote(url.fragment) not in pages[target].anchors:
                yield f"{path.relative_to(site)}: {link}: no such place in it"


def test_dead_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="b.html#x">1</a><a href="b.html#y">2</a><img src="c.png"><a href="#z">'
    )
    (tmp_path / "b.html").write_text(
        '<p id="x"><a href="https://example.com/nowhere">3</a><a href="a.html"></p>'
    )
    assert list(_dead_links(tmp_path)) == [
        "a.html: b.html#y: no such place in it",
        "a.html: c.png: no such file",
        "a.html: #z: no such place in it",
    ]


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_without_a_dead_link(tmp_path: Path) -> None:
    site = tmp_path / "site"
    words = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-d",
        tmp_path / "read",
        ROOT / "docs",
        site,
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(_dead_links(site)) == []
    built = {path.stem for path in site.glob("*.html")}
    assert {path.stem for path in (ROOT / "docs").glob("*.md")} <= built
