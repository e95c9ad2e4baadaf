"""Small corpora for the tests of ``dla golden``, and damage done to the machine underneath them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.golden.case import GoldenCase
from experiments.golden.record import record_corpus
from experiments.golden.store import Corpus
from isa import encoding
from isa.ops import ALL
from tests.golden_cases.machines import BALANCED
from tests.golden_cases.operations import Convolution, Pooling, Window
from tests.golden_cases.tensor_operations import Addition, Product


def small_cases() -> list[GoldenCase]:
    """Four quick cases of two levels."""
    return [
        Convolution(Window((2, 4, 4)), 3, zeros=(5, 1)).case("L1/conv", "a convolution", BALANCED),
        Product((2, 5, 3)).case("L1/matmul", "a product", BALANCED),
        Pooling(window=Window((2, 4, 4), (2, 2), (2, 2), padding=(0, 0, 0, 0))).case(
            "L2/max", "a pool", BALANCED
        ),
        Addition(9).case("L2/add", "an addition", BALANCED),
    ]


def small_corpus(folder: Path) -> Corpus:
    """The corpus of :func:`small_cases` in ``folder``."""
    return record_corpus(folder, small_cases(), lambda stage: None)


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file in a folder with its bytes, to check that a command changes nothing."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def tampered(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the index of a corpus and update its digest, so that the digest does not reveal it."""
    index = folder / "corpus.json"
    document = json.loads(index.read_text())
    change(document)
    cases = document["cases"]
    lines = "".join(f"{name} {cases[name]['sha256']}\n" for name in sorted(cases))
    digest = hashlib.sha256(lines.encode()).hexdigest()[:16]
    document["digest"] = document["history"][-1]["digest"] = digest
    document["history"][-1]["cases"] = len(cases)
    index.write_text(json.dumps(document))


def rewritten(folder: Path, name: str, old: str, new: str, called: str | None = None) -> None:
    """Change the text of a case, and its place and sum in the index; ``called`` is its new name."""

    def change(document: dict[str, Any]) -> None:
        entry = document["cases"].pop(name)
        text = (folder / entry["file"]).read_text()
        assert old in text
        raw = text.replace(old, new).encode()
        sha256 = hashlib.sha256(raw).hexdigest()
        file = f"cases/{name}-{sha256[:8]}.toml"
        (folder / entry["file"]).rename(folder / file)
        (folder / file).write_bytes(raw)
        document["cases"][called or name] = {"file": file, "sha256": sha256}

    tampered(folder, change)


@contextmanager
def changed(mnemonic: str, **values: object) -> Iterator[None]:
    """Change an instruction's declaration in all of its forms, inside this context.

    Other code sees it as frozen.
    """
    forms = ALL[mnemonic].forms
    before = [{name: getattr(form, name) for name in values} for form in forms]
    for form in forms:
        _set(form, values)
    try:
        yield
    finally:
        for form, own in zip(forms, before, strict=True):
            _set(form, own)


def _set(instruction: object, values: dict[str, object]) -> None:
    for name, value in values.items():
        object.__setattr__(instruction, name, value)
    for item in vars(encoding).values():
        if hasattr(item, "cache_clear"):
            item.cache_clear()
