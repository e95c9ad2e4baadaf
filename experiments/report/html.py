"""HTML pages: one self-contained file with its data, style, scripts and plotly.js.

plotly.js is compressed, because it is by far the largest part of a page; texts and tables appear
before it is loaded. The Content-Security-Policy of a page forbids all network access and, by
hashes, all scripts and style elements except the page's own. Text and HTML are two types: only
:func:`escape_html` turns text into HTML. Equal contents give equal bytes.
"""

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from itertools import zip_longest
from typing import Any, NewType

from experiments.extras import require_plotly
from experiments.glossary import glossary
from experiments.literal import escape_html

_SCROLLS = 'class="wide" tabindex="0" role="region" aria-label="table"'
"""Attributes of elements that may be wider than the window.

Arrow keys scroll them once they have the focus.
"""

Html = NewType("Html", str)
"""HTML in which all text from outside is escaped."""
CHOOSER = Html('<div id="tools" class="tools"></div><div id="chosen" class="chosen" hidden></div>')
"""Places where a page's script puts the filters of its charts, and details of a clicked item."""
_SHARED = ("page.js", "words.js", "terms.js", "table.js")


@dataclass(frozen=True)
class Section:
    """Section of an HTML page: a heading with an anchor, and HTML below it."""

    identity: str
    heading: str
    body: Html


def page(
    title: str, sections: Sequence[Section], data: dict[str, Any], scripts: Sequence[str]
) -> str:
    """Return a complete HTML page.

    ``scripts`` are files in the folder of the charts' modules, run in order; they find ``data`` as
    ``DATA``. Raises InputError if plotly is not installed.
    """
    meanings = pairs((", ".join(term.words), term.text) for term in glossary())
    sections = (*sections, Section("words", "Words", fold_block("What the words mean", meanings)))
    code = '"use strict";\n' + "\n".join(asset(name) for name in (*_SHARED, *scripts))
    data_parts = (
        f'<script type="application/json" id="data">{embed_json(data)}</script>'
        f'<script type="application/gzip" id="plotly">{_pack_plotly()}</script>'
    )
    policy = _policy(asset("page.css"), (_plotly(), code))
    return _document(title, sections, code, policy, _instead_of_sheets(), data_parts)


def plain_page(title: str, sections: Sequence[Section], code: str = "", end: str = "") -> str:
    """Return an HTML page without charts, with the HTML ``end`` below its sections.

    Its ``code`` may fetch from the server of the page.
    """
    policy = f"{_policy(asset('page.css'), (code,))}; connect-src 'self'"
    return _document(title, sections, code, policy, '<link rel="icon" href="data:,">', end)


def _document(
    title: str, sections: Sequence[Section], code: str, policy: str, head: str, end: str
) -> str:
    """Return an HTML page with the HTML ``head`` and ``end`` at the ends of its head and body."""
    links = "".join(
        f'<a href="#{section.identity}">{escape_html(section.heading)}</a>' for section in sections
    )
    parts = "".join(
        "<section "
        f'id="{section.identity}"><h2>{escape_html(section.heading)}</h2>{section.body}</section>'
        for section in sections
    )
    return (
        "<!DOCTYPE html>\n"
        f'<html lang="en"><head><meta charset="utf-8"><title>{escape_html(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width"><meta name="color-scheme" '
        'content="light dark">'
        f"<style>{asset('page.css')}</style>"
        f"{head}</head><body>"
        f"<header><h1>{escape_html(title)}</h1><nav>{links}</nav></header><main>{parts}</main>"
        f"{end}<script>{code}</script></body></html>\n"
    )


def _policy(style: str, scripts: Sequence[str]) -> str:
    """Return the Content-Security-Policy of a page.

    It allows style attributes, because plotly.js sets them, and an empty style element, to which
    plotly.js adds its rules.
    """
    run = " ".join(map(_hash_code, scripts))
    return (
        f"default-src 'none'; script-src {run}; style-src-elem {_hash_code(style)} "
        f"{_hash_code('')}; "
        "style-src-attr 'unsafe-inline'; img-src data: blob:; form-action 'none'; base-uri 'none'"
    )


def _instead_of_sheets() -> str:
    """Return elements that keep plotly.js from adding the style sheet of its maps.

    No page has maps. plotly.js adds the sheet only if no element has the identifier of the sheet.
    """
    return "".join(
        f'<meta id="{name}">'
        for name in re.findall(r'getElementById\("([0-9a-f]{64})"\)', _plotly())
    )


def _hash_code(code: str) -> str:
    return f"'sha256-{b64encode(sha256(code.encode()).digest()).decode()}'"


def chart_place(identity: str, heading: str = "", note: str = "") -> Html:
    """Return the HTML in which the script draws a chart, with the chart's heading and note.

    The note says how to read the chart.
    """
    title = f'<figcaption id="{identity}-title">{escape_html(heading)}</figcaption>'
    place = (
        f'<div class="chart" id="{identity}" role="group" aria-labelledby="{identity}-title"></div>'
    )
    return Html(
        f"<figure>{title}{place}{f'<p class=note>{escape_html(note)}</p>' if note else ''}</figure>"
    )


def table_place(identity: str) -> Html:
    """Return the HTML for a table that the reader can sort, filter and copy."""
    return Html(f'<div id="{identity}"></div>')


def join_parts(*parts: Html) -> Html:
    """Concatenate fragments of HTML."""
    return Html("".join(parts))


def paragraph(text: str) -> Html:
    return Html(f"<p>{escape_html(text)}</p>")


def listing(text: str) -> Html:
    """Return text as preformatted HTML, which keeps its line breaks and spaces."""
    return Html(f"<pre>{escape_html(text)}</pre>")


def embed_json(data: Any) -> str:
    """Return ``data`` as JSON for a script element; nothing in it can end the element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Iterable[int] = (),
    links: Sequence[str] = (),
) -> Html:
    """Return an HTML table; the columns in ``numbers`` are aligned to the right.

    The first cell of each row is a link to the address in ``links``, if there are any.
    """
    right = set(numbers)

    def cells(tag: str, row: Sequence[object], link: str = "") -> str:
        texts = [escape_html(str(value)) for value in row]
        if link:
            texts[0] = f'<a href="{escape(link)}">{texts[0]}</a>'
        return "".join(
            f"<{tag}{' class=number' if column in right else ''}>{text}</{tag}>"
            for column, text in enumerate(texts)
        )

    body = "".join(
        f"<tr>{cells('td', row, link)}</tr>" for row, link in zip_longest(rows, links, fillvalue="")
    )
    return Html(
        f"<div {_SCROLLS}><table><thead><tr>{cells('th', headings)}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def pairs(rows: Iterable[tuple[str, object]], note: Callable[[str], str] = lambda name: "") -> Html:
    """Return an HTML table with one row for each pair of name and value.

    ``note`` returns the tooltip of a name, or an empty text.
    """
    lines = "".join(
        f"<tr><th{_tooltip(note(name))}>{escape_html(name)}</th>"
        f"<td>{escape_html(str(value))}</td></tr>"
        for name, value in rows
    )
    return Html(f'<table class="pairs"><tbody>{lines}</tbody></table>')


def _tooltip(text: str) -> str:
    return f' title="{escape(text)}"' if text else ""


def fold_block(summary: str, body: Html) -> Html:
    """Return an HTML block that opens on a click."""
    return Html(f"<details><summary>{escape_html(summary)}</summary>{body}</details>")


@cache
def asset(name: str) -> str:
    """Return the text of a file in ``experiments/report/charts``."""
    return (files("experiments.report") / "charts" / name).read_text(encoding="utf-8")


@cache
def _pack_plotly() -> str:
    """Return plotly.js compressed, in base64; the page's script unpacks it."""
    return b64encode(gzip.compress(_plotly().encode(), mtime=0)).decode()


@cache
def _plotly() -> str:
    require_plotly()
    from plotly.offline import get_plotlyjs

    code: str = get_plotlyjs()
    return code
