"""The reader of guides: blocks, commands, and the comparison of output."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import Block, blocks, commands, differs
from tests.docs.session import Session

TEXT = """\
Words.

```console no-test
$ rm everything
```

1. A list.

   ```python file=a/b.py
   x = 1
     y
   ```

````text
```
not a block
```
````
"""


def test_blocks_have_a_language_words_text_and_a_line() -> None:
    first, second, third = blocks(TEXT)
    assert first == Block("console", ("no-test",), "$ rm everything\n", 4)
    assert second == Block("python", ("file=a/b.py",), "x = 1\n  y\n", 10)
    assert (second.file, third.text) == ("a/b.py", "```\nnot a block\n```\n")


def test_commands_have_their_output_under_them() -> None:
    found = commands(Block("console", (), "$ a \\\n>   b\nout\n\n$ c\n", 7))
    assert [(command.text, command.output, command.line) for command in found] == [
        ("a b", ("out", ""), 7),
        ("c", (), 11),
    ]
    with pytest.raises(
        ValueError,
        match=r"^line 7: a console block starts with '\$ ' and a command, not with 'out'$",
    ):
        commands(Block("console", (), "out\n", 7))


@pytest.mark.parametrize(
    ("expected", "actual", "same"),
    [
        (["a  b"], " a b\n\n", True),
        (["a b"], "ab\n", False),
        (["a", "..."], "a\nb\nc\n", True),
        (["...", "c"], "a\nb\nc\n", True),
        (["..."], "", True),
        (["a"], "a\nb\n", False),
        (["cycles 7,... of ..."], "cycles 7,123 of 9\n", True),
        (["cycles 7,... of ..."], "cycles 8,123 of 9\n", False),
        (["x ... y"], "x y\n", True),
        (["a.c"], "abc\n", False),
        (["a", "...", "d"], "a\nd\n", True),
        (["a", "...", "d"], "a\ndd\n", False),
        (["1.5 M, 7%"], "1.5 M, 7%", True),
        (["1.5 M, 7%"], "1.6 M, 7%", False),
    ],
)
def test_comparison(expected: list[str], actual: str, same: bool) -> None:
    assert differs(expected, actual) is not same


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```console\n$ true\n$ false\n```", "guide.md:3: $ false\nexit status 1"),
        (
            "```console\n$ echo a\nb\n```",
            "guide.md:2: $ echo a\nother output\n--- shown\nb\n--- printed\na\n",
        ),
        ("```console\n$ dla run nothing\n```", "guide.md:2: $ dla run nothing\nexit status 2"),
        ("```python\n>>> 1 + 1\n3\n```", "guide.md, block at line 2:"),
        ("```python\nassert False, 'no'\n```", "no"),
    ],
)
def test_what_is_not_so_fails_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        session = Session(Path("guide.md"), tmp_path, patch)
        *before, last = blocks(text)
        for block in before:
            session.run(block)
        with pytest.raises(AssertionError) as caught:
            session.run(last)
    assert message in str(caught.value)


def test_the_state_lasts_from_block_to_block(tmp_path: Path) -> None:
    text = """\
```python file=values.py
A = 2
```
```console
$ false
$ echo $?
1
$ dla run nothing
error: unknown model 'nothing'; ...
$ echo $?
2
$ python -c 'import values; print(values.A)'
2
$ dla --version | tr a-z A-Z
DLA ...
```
```python
b = 3
```
```python
>>> b + 1
4
>>> c = 5
```
```python
assert c == 5
```
"""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        session = Session(Path("guide.md"), tmp_path, patch)
        for block in blocks(text):
            session.run(block)
