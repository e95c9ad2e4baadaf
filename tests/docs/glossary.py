"""Write the words of experiments/glossary.toml to docs/glossary.md.

``python -m tests.docs.glossary`` updates them.
"""

from __future__ import annotations

from pathlib import Path

from experiments.glossary import glossary

PAGE = Path(__file__).parents[2] / "docs/glossary.md"
MARK = "<!-- tests.docs.glossary -->\n"
HEAD = "| word | meaning | defined in |\n|---|---|---|\n"


def written(page: str) -> str:
    """The page with the present words after the mark."""
    return (
        page.partition(MARK)[0]
        + MARK
        + "\n"
        + HEAD
        + "".join(
            f"| {', '.join(term.words)} | {term.meaning} | {term.defined} |\n"
            for term in glossary()
        )
    )


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
