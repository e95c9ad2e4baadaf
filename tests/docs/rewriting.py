"""Write the tables of rewrite rules and passes in docs/compiler.md.

``python -m tests.docs.rewriting`` updates them.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from byoc.frontend.onnx.rewriting.law import Law
from byoc.frontend.onnx.rewriting.prepare import LAWS, ORDER

PAGE = Path(__file__).parents[2] / "docs/compiler.md"
MARKS = "<!-- tests.docs.rewriting {} -->", "<!-- end of {} -->"


def laws() -> str:
    """Return the table of rewrite rules: one row each, with its docstring."""
    lines = ["| rule | equation and condition | reduces | bits |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_law, LAWS)])


def _law(law: Law) -> str:
    text = " ".join(inspect.cleandoc(type(law).__doc__ or "").split()).replace("|", "\\|")
    return (
        f"| `{law.name}` | {text} | {law.measure} | {'same' if law.exact else 'rounding changes'} |"
    )


def passes() -> str:
    """Return the table of passes in order, without shape inference."""
    lines = ["| pass | models | reason for its position |", "|---|---|---|"]
    rows = (f"| `{stage.step.__name__}` | {stage.models} | {stage.why} |" for stage in ORDER)
    return "\n".join([*lines, *(row for row in rows if "infer_shapes" not in row)])


def written(page: str) -> str:
    """Return ``page`` with both tables updated."""
    for name, table in (("laws", laws()), ("passes", passes())):
        begin, end = (mark.format(name) for mark in MARKS)
        before, found, rest = page.partition(f"{begin}\n")
        _, ended, after = rest.partition(f"\n{end}")
        assert found, f"the page has no line {begin}"
        assert ended, f"the page has no line {end}"
        page = f"{before}{found}\n{table}\n{ended}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
