"""Fenced blocks of a Markdown text, their commands, and comparison with the shown output."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_FENCE = re.compile(r"^( *)(`{3,})([^`\n]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
ANY = "..."


@dataclass(frozen=True)
class Block:
    """One fenced block.

    ``language`` and ``words`` are its info string, and ``line`` is the number of its first line.
    """

    language: str
    words: tuple[str, ...]
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that the block's text goes to."""
        return self._word("file=")

    @property
    def needs(self) -> str | None:
        """The program, of a Debian package, without which the block cannot run."""
        return self._word("needs=")

    def _word(self, prefix: str) -> str | None:
        return next(
            (word.removeprefix(prefix) for word in self.words if word.startswith(prefix)), None
        )


@dataclass(frozen=True)
class Command:
    """One command line of a console block and the output under it."""

    text: str
    output: tuple[str, ...]
    line: int


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a Markdown text, in order, indentation taken off."""
    for found in _FENCE.finditer(text):
        indent, _, info, body = found.groups()
        language, *words = info.split() or [""]
        lines = [line.removeprefix(indent) for line in body.splitlines(keepends=True)]
        yield Block(language, tuple(words), "".join(lines), text.count("\n", 0, found.start()) + 2)


def commands(block: Block) -> list[Command]:
    """The commands of a console block with their output.

    Raises ValueError for output before the first command.
    """
    found: list[Command] = []
    lines = iter(enumerate(block.text.splitlines(), start=block.line))
    for number, line in lines:
        if line.startswith("$ "):
            text = line[2:]
            while text.endswith("\\"):
                text = text[:-1] + next(lines)[1].removeprefix("> ").lstrip()
            found.append(Command(text, (), number))
        elif not found:
            raise ValueError(
                f"line {number}: a console block starts with '$ ' and a command, not with '{line}'"
            )
        else:
            last = found[-1]
            found[-1] = Command(last.text, (*last.output, line), last.line)
    return found


def differs(expected: Sequence[str], actual: str) -> bool:
    """Return True if ``actual`` differs from the shown output.

    Spaces and ``...`` follow the rules of the package's docstring.
    """
    shown = [found for line in expected if (found := " ".join(line.split()))]
    printed = "".join(
        f"{found}\n" for line in actual.splitlines() if (found := " ".join(line.split()))
    )
    pattern = "".join(
        r"(?:.*\n)*?" if line == ANY else _text_pattern(line) + r"\n" for line in shown
    )
    return re.fullmatch(pattern, printed) is None


def _text_pattern(text: str) -> str:
    """Return a regular expression for one shown line; spaces around ``...`` may be missing."""
    return r" *.* *".join(re.escape(part) for part in re.split(rf" ?{re.escape(ANY)} ?", text))
