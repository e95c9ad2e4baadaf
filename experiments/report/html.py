"""Pages: one HTML file that holds its data, its style, its scripts and plotly.js, and needs nothing else.

plotly.js is in it compressed, as it is most of the page by far; texts and tables are there before it is. The page
forbids itself every network access, and every script and style element but its own, by their hashes
(Content-Security-Policy). What is a text and what is HTML are two types: a text becomes HTML by :func:`escaped` and by
nothing else. Equal contents give equal bytes.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any, NewType

from experiments.literal import escaped
from isa.errors import InputError

_SCROLLS = 'class="wide" tabindex="0" role="region" aria-label="table"'
"""What may be wider than the window: arrow keys move it once it has the focus."""

Html = NewType("Html", str)
"""Text with elements: what in it came from outside is escaped."""
CHOOSER = Html('<div id="tools" class="tools"></div><div id="chosen" class="chosen" hidden></div>')
"""Where a page's script puts what filters its charts, and what it says of something clicked."""
_SHARED = ("page.js", "words.js", "table.js")


@dataclass(frozen=True)
class Section:
    """A part of a page: a heading with an address in the page, and HTML below it."""

    identity: str
    heading: str
    body: Html


def page(title: str, sections: Sequence[Section], data: dict[str, Any], scripts: Sequence[str]) -> str:
    """A whole page. ``scripts`` are files beside the charts' modules, run in order; they find ``data`` as ``DATA``.

    Raises InputError where plotly is not installed.
    """
    links = "".join(f'<a href="#{section.identity}">{escaped(section.heading)}</a>' for section in sections)
    parts = "".join(
        f'<section id="{section.identity}"><h2>{escaped(section.heading)}</h2>{section.body}</section>'
        for section in sections
    )
    code = '"use strict";\n' + "\n".join(asset(name) for name in (*_SHARED, *scripts))
    style = asset("page.css")
    return (
        "<!DOCTYPE html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escaped(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(style, (_plotly(), code))}">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark">'
        f"<style>{style}</style>"
        f"{_instead_of_sheets()}</head><body><header><h1>{escaped(title)}</h1><nav>{links}</nav></header><main>{parts}</main>"
        f'<script type="application/json" id="data">{embedded(data)}</script>'
        f'<script type="application/gzip" id="plotly">{_packed()}</script>'
        f"<script>{code}</script></body></html>\n"
    )


def _policy(style: str, scripts: Sequence[str]) -> str:
    """Styles of single elements are free, for plotly.js sets them; an empty style element is where it adds its own."""
    run = " ".join(map(_hashed, scripts))
    return (
        f"default-src 'none'; script-src {run}; style-src-elem {_hashed(style)} {_hashed('')}; "
        "style-src-attr 'unsafe-inline'; img-src data: blob:; form-action 'none'; base-uri 'none'"
    )


def _instead_of_sheets() -> str:
    """What keeps plotly.js from adding the style sheet of its maps, which no page has: it looks for its name first."""
    return "".join(f'<meta id="{name}">' for name in re.findall(r'getElementById\("([0-9a-f]{64})"\)', _plotly()))


def _hashed(code: str) -> str:
    return f"'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'"


def chart_place(identity: str, heading: str = "", note: str = "") -> Html:
    """Where the script draws a chart, what it is called, and how to read it."""
    title = f'<figcaption id="{identity}-title">{escaped(heading)}</figcaption>'
    place = f'<div class="chart" id="{identity}" role="group" aria-labelledby="{identity}-title"></div>'
    return Html(f"<figure>{title}{place}{f'<p class=note>{escaped(note)}</p>' if note else ''}</figure>")


def table_place(identity: str) -> Html:
    """Where the script puts a table that sorts, filters and copies."""
    return Html(f'<div id="{identity}"></div>')


def joined(*parts: Html) -> Html:
    """One after the other."""
    return Html("".join(parts))


def paragraph(text: str) -> Html:
    return Html(f"<p>{escaped(text)}</p>")


def listing(text: str) -> Html:
    """Text with its own lines and spaces."""
    return Html(f"<pre>{escaped(text)}</pre>")


def embedded(data: Any) -> str:
    """``data`` as JSON that may stand in a script element: nothing in it can end the element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = ()) -> Html:
    """An HTML table; the columns in ``numbers`` are aligned to the right."""
    right = set(numbers)

    def cells(tag: str, row: Sequence[object]) -> str:
        return "".join(
            f"<{tag}{' class=number' if column in right else ''}>{escaped(str(value))}</{tag}>"
            for column, value in enumerate(row)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return Html(
        f"<div {_SCROLLS}><table><thead><tr>{cells('th', headings)}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def pairs(rows: Iterable[tuple[str, object]]) -> Html:
    """A table of names and values."""
    lines = "".join(f"<tr><th>{escaped(name)}</th><td>{escaped(str(value))}</td></tr>" for name, value in rows)
    return Html(f'<table class="pairs"><tbody>{lines}</tbody></table>')


def folded(summary: str, body: Html) -> Html:
    """Something that opens on a click."""
    return Html(f"<details><summary>{escaped(summary)}</summary>{body}</details>")


@cache
def asset(name: str) -> str:
    """A file of ``experiments/report/charts``."""
    return (files("experiments.report") / "charts" / name).read_text(encoding="utf-8")


@cache
def _packed() -> str:
    """plotly.js, which the page's script unpacks."""
    return b64encode(gzip.compress(_plotly().encode(), mtime=0)).decode()


@cache
def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise InputError("pages need plotly; install it with: pip install plotly") from error
    code: str = get_plotlyjs()
    return code
