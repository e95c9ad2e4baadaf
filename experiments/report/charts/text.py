"""Texts of charts and pages: labels that are not too long, numbers as people read them."""

from __future__ import annotations

from html import escape

LONGEST_LABEL = 34


def shortened(label: str, longest: int = LONGEST_LABEL) -> str:
    """``label`` with its middle left out where it is too long for an axis; both ends tell layers apart."""
    if len(label) <= longest:
        return label
    front = (longest - 1) // 2
    return f"{label[:front]}…{label[-(longest - 1 - front) :]}"


def escaped(text: str) -> str:
    """``text`` as plotly.js shows it unchanged: it knows a few elements of HTML, but no quotation marks as entities."""
    return escape(text, quote=False)
