"""Write the cases as the data that ``dla golden record`` and ``dla golden export`` read."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from typing import Any

from dla_sim.timing import Timing
from experiments.golden.case import GoldenCase
from experiments.golden.catalogue import CASES, INDEX
from experiments.golden.store import INLINE_BYTES, digest_of
from isa.assembler import disassemble
from tests.golden_cases import SOURCES, made


class Objects(dict[str, bytes]):
    """Contents by digest; references contain short ones."""

    def reference(self, content: bytes) -> str:
        if len(content) <= INLINE_BYTES:
            return f"hex:{content.hex()}"
        self[digest_of(content)] = content
        return f"object:{digest_of(content)}"


def document(case: GoldenCase, objects: Objects) -> dict[str, Any]:
    """A case as plain values; what every other case has, too, is left out."""
    usual = Timing().model_dump()
    found: dict[str, Any] = {
        "name": case.name,
        "description": case.description,
        "assembly": disassemble(replace(case.program, segments=())),
        "images": {
            str(one.address): objects.reference(one.data.tobytes()) for one in case.program.segments
        },
        "inputs": {name: objects.reference(content) for name, content in case.inputs.items()},
        "timing": {name: value for name, value in case.timing.items() if value != usual[name]},
        "words": None if case.words is None else [f"{word:016x}" for word in case.words.tolist()],
    }
    return {name: value for name, value in found.items() if value not in (None, {})}


def main() -> None:
    """All levels, in the order of the corpus."""
    objects = Objects()
    cases = [document(case, objects) for level in SOURCES for case in made(level)]
    texts = {INDEX: json.dumps(cases, indent=0).encode(), **dict(sorted(objects.items()))}
    with zipfile.ZipFile(CASES, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in texts.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)


if __name__ == "__main__":
    main()
