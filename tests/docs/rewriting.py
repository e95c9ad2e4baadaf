"""The tables of laws and passes in docs/compiler.md: ``python -m tests.docs.rewriting`` writes them there anew."""

from __future__ import annotations

import inspect
from pathlib import Path

from byoc.frontend.onnx.rewriting.law import Law
from byoc.frontend.onnx.rewriting.prepare import LAWS, ORDER

PAGE = Path(__file__).parents[2] / "docs/compiler.md"
MARKS = "<!-- tests.docs.rewriting {} -->", "<!-- end of {} -->"


def laws() -> str:
    """A row a law: its docstring."""
    lines = ["| law | left side = right side, and when | makes smaller | bits |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(_law, LAWS)])


def _law(law: Law) -> str:
    text = " ".join(inspect.cleandoc(type(law).__doc__ or "").split()).replace("|", "\\|")
    return f"| `{law.name}` | {text} | {law.measure} | {'same' if law.exact else 'rounding moves'} |"


def passes() -> str:
    """A row a pass in its place; shapes are inferred between them unsaid."""
    lines = ["| pass | models | why it stands there |", "|---|---|---|"]
    rows = (f"| `{stage.step.__name__}` | {stage.models} | {stage.why} |" for stage in ORDER)
    return "\n".join([*lines, *(row for row in rows if "infer_shapes" not in row)])


def written(page: str) -> str:
    """``page`` with both tables as they are now."""
    for name, table in (("laws", laws()), ("passes", passes())):
        begin, end = (mark.format(name) for mark in MARKS)
        before, found, rest = page.partition(f"{begin}\n")
        _, ended, after = rest.partition(f"\n{end}")
        assert found, f"{begin} does not stand in the page"
        assert ended, f"{end} does not stand in the page"
        page = f"{before}{found}{table}{ended}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
