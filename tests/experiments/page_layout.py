"""Measure the layout of an HTML report in a browser.

It finds the places of texts and controls, and how readable they are.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib.image
import numpy as np
from numpy.typing import NDArray

from tests.experiments.browser import Browser

CONTROLS = "a[href], button, input, select, textarea, summary, [tabindex], [onclick], .modebar-btn"
"""Whatever a person may click, and plotly.js' own buttons."""
TOLERANCE = 1.0
"""Pixels that boxes may share: fonts and rounding."""

_BOXES = """(() => {
  const found = [], number = new Map();
  const numbered = (one) => number.get(one) ?? (number.set(one, number.size), number.size - 1);
  const seen = (one) => one.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  const clip = (one) => {
    let [left, top, right, bottom] = [-Infinity, -Infinity, Infinity, Infinity];
    const end = document.documentElement;
    for (let above = one; above && above !== end; above = above.parentElement) {
      const { overflowX, overflowY } = getComputedStyle(above);
      if (overflowX === "visible" && overflowY === "visible") continue;
      const box = above.getBoundingClientRect();
      if (overflowX !== "visible") {
        [left, right] = [Math.max(left, box.left), Math.min(right, box.right)];
      }
      if (overflowY !== "visible") {
        [top, bottom] = [Math.max(top, box.top), Math.min(bottom, box.bottom)];
      }
    }
    return { left, top, right, bottom };
  };
  const past = (box, edge) => box.left < edge.left - 1 || box.right > edge.right + 1
    || box.top < edge.top - 1 || box.bottom > edge.bottom + 1;
  // Whether something hides part of it that no scrolling shows.
  const hidden = (one, box) => {
    const end = document.documentElement;
    for (let above = one.parentElement; above && above !== end; above = above.parentElement) {
      const { overflowX, overflowY } = getComputedStyle(above);
      const ways = [overflowX, overflowY];
      if (ways.some((way) => way === "auto" || way === "scroll")) return false;
      const clips = ways.some((way) => way !== "visible");
      if (clips && past(box, above.getBoundingClientRect())) return true;
    }
    return false;
  };
  const add = (one, box, text, kind) => {
    const edge = clip(one.parentElement);
    const shown = {
      left: Math.max(box.left, edge.left), right: Math.min(box.right, edge.right),
      top: Math.max(box.top, edge.top), bottom: Math.min(box.bottom, edge.bottom),
    };
    const cut = hidden(one, box);
    if (!cut && (shown.right - shown.left < 1 || shown.bottom - shown.top < 1)) return;
    const above = [];
    for (let next = one; next; next = next.parentElement) above.push(numbered(next));
    const style = getComputedStyle(one);
    found.push({
      text, kind, above, cut,
      box: [
        shown.left + scrollX, shown.top + scrollY, shown.right + scrollX, shown.bottom + scrollY,
      ],
      color: one.closest("svg") ? style.fill : style.color,
    });
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const one = node.parentElement;
    if (!node.data.trim() || one.closest("script, style, option, svg") || !seen(one)) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) add(one, box, node.data.trim().slice(0, 60), "text");
  }
  for (const one of document.querySelectorAll("svg text")) {
    const text = one.textContent.trim().slice(0, 60);
    if (text && seen(one)) add(one, one.getBoundingClientRect(), text, "text");
  }
  for (const one of document.querySelectorAll("button, input, select")) {
    const text = one.textContent.slice(0, 20) || one.id;
    if (seen(one)) add(one, one.getBoundingClientRect(), text, "control");
  }
  return found;
})()"""


@dataclass(frozen=True)
class Box:
    """Visible place of a line of text or a control.

    ``box`` is left, top, right and bottom in pixels of the whole page. ``above`` has the numbers of
    the elements that contain it, itself first. ``cut`` is True if a part is hidden and no scrolling
    shows it. ``color`` is the colour of its text as the browser writes it.
    """

    text: str
    kind: str
    above: tuple[int, ...]
    cut: bool
    box: tuple[float, float, float, float]
    color: str

    def meets(self, other: Box) -> bool:
        """Return True if the two overlap although neither is within the other."""
        if self.above[0] in other.above or other.above[0] in self.above:
            return False
        left, top = (max(self.box[side], other.box[side]) for side in (0, 1))
        right, bottom = (min(self.box[side], other.box[side]) for side in (2, 3))
        return right - left > TOLERANCE and bottom - top > TOLERANCE


def opened(
    chromium: Browser, page: Path, width: int, dark: bool = False, paper: bool = False
) -> list[Box]:
    """Open a page in a window of so many pixels and as high as the page, and measure it."""
    chromium.resize(width, dark=dark, paper=paper)
    chromium.open(page)
    return resized(chromium, width, dark, paper)


def resized(chromium: Browser, width: int, dark: bool = False, paper: bool = False) -> list[Box]:
    """Make the window of an open page so wide, and as high as the page then is, and measure it.

    A browser tells a page of its width with the next frame: nothing to measure before it has drawn
    for that.
    """
    chromium.resize(width, dark=dark, paper=paper)
    chromium.wait(f"innerWidth === {width} && drawnWidth === innerWidth")
    chromium.resize(width, chromium.run("document.documentElement.scrollHeight"), dark, paper)
    return boxes(chromium)


def boxes(chromium: Browser) -> list[Box]:
    """Every line of text and every control that is seen."""
    found = chromium.run(_BOXES)
    return [Box(**one | {"above": tuple(one["above"]), "box": tuple(one["box"])}) for one in found]


def overlaps(found: list[Box]) -> list[tuple[str, str]]:
    """Return pairs of texts or controls that overlap."""
    ordered = sorted(found, key=lambda one: one.box[1])
    return [(one.text, other.text) for one, other in _close(ordered) if one.meets(other)]


def _close(ordered: list[Box]) -> Iterator[tuple[Box, Box]]:
    """Pairs whose heights meet, of boxes from the top to the bottom."""
    open_: list[Box] = []
    for one in ordered:
        open_ = [before for before in open_ if before.box[3] > one.box[1]]
        yield from ((before, one) for before in open_)
        open_.append(one)


def cut_off(chromium: Browser, found: list[Box], width: int) -> list[str]:
    """Return texts and controls that are partly hidden or outside the window."""
    outside = [
        one.text
        for one in found
        if one.cut or one.box[0] < -TOLERANCE or one.box[2] > width + TOLERANCE
    ]
    wide = int(chromium.run("document.documentElement.scrollWidth"))
    return outside + ([f"the page is {wide} pixels wide"] if wide > width else [])


def poor_contrasts(chromium: Browser, found: list[Box], least: float) -> list[tuple[str, float]]:
    """Return the texts whose contrast with their background is below ``least``.

    The contrast is measured in an image of the page (WCAG 2.2, 1.4.3).
    """
    pixels = np.asarray(matplotlib.image.imread(io.BytesIO(chromium.picture())))[..., :3]
    poor = []
    for one in found:
        if one.kind != "text":
            continue
        left, top, right, bottom = (round(side) for side in one.box)
        part = pixels[top:bottom, left:right].reshape(-1, 3)
        if len(part):
            ratio = contrast(_parsed(one.color), _most_frequent(part))
            if ratio < least:
                poor.append((one.text, round(ratio, 2)))
    return poor


def _parsed(color: str) -> NDArray[np.float64]:
    """``rgb(1, 2, 3)`` as three shares."""
    return np.array([float(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]])


def _most_frequent(part: NDArray[np.float32]) -> NDArray[np.float64]:
    """The colour that most of the pixels have: behind a text that is the ground."""
    values, counts = np.unique(
        np.round(part * 255).astype(np.int64) @ [65536, 256, 1], return_counts=True
    )
    found = int(values[counts.argmax()])
    return np.array([found >> 16, found >> 8 & 255, found & 255]) / 255


def contrast(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """The ratio of two colours' luminances, from 1 to 21 (WCAG 2.2)."""
    dark, light = sorted(_luminance(color) for color in (one, other))
    return (light + 0.05) / (dark + 0.05)


def _luminance(color: NDArray[np.float64]) -> float:
    linear = np.where(color <= 0.04045, color / 12.92, ((color + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
