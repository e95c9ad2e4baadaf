"""``dla schema KIND``: every TOML file of the project and of its pages agrees with its schema."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from experiments.cli.main import main
from experiments.cli.schema import KINDS
from tests.docs.blocks import blocks
from tests.docs.session import ROOT

jsonschema: Any = pytest.importorskip("jsonschema")
KEYS = {
    "parameters": "machine-sweep", "accelerator": "system", "networks": "sweep",
    "layers": "schedule", "groups": "schedule",
    "residents": "schedule", "energy": "cost", "arch": "machine", "timing": "machine",
}  # fmt: skip
READ_BY_ITS_SCRIPT = ROOT / "benchmarks" / "real_networks.toml"


def _files() -> Iterator[tuple[str, str]]:
    """Yield name and text of every shipped and documented TOML file that users can write."""
    for folder in ("dla_sim/presets", "experiments/cost", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.toml")):
            if path == READ_BY_ITS_SCRIPT:
                continue
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        for block in blocks(page.read_text(encoding="utf-8")):
            if block.file and block.file.endswith(".toml") and "pyproject" not in block.file:
                yield f"{page.name}: {block.file}", block.text


FILES = dict(_files())


def _schema(kind: str) -> Any:
    return KINDS[kind]()


def _kind(content: dict[str, Any]) -> str:
    return next(KEYS[key] for key in KEYS if key in content)


@pytest.mark.parametrize("name", FILES)
def test_files_agree_with_their_schema(name: str) -> None:
    content = tomllib.loads(FILES[name])
    validator = jsonschema.Draft202012Validator(_schema(_kind(content)))
    problems = [error.message for error in validator.iter_errors(content)]
    assert problems == []


def test_every_kind_occurs() -> None:
    assert {_kind(tomllib.loads(text)) for text in FILES.values()} >= KINDS.keys()


REFUSED: dict[str, list[str]] = {
    "machine": ["[arch]\nsram = 3\n", "[arch]\nsram_bytes = 1\n", '[arch]\nsram_bytes = "many"\n'],
    "sweep": ["arch.pe.oc = 3\n", 'networks = "a"\narch.sram = 4\n', 'networks = ["a", 3]\n'],
    "system": ['[[accelerator]]\ncount = 2\n', '[[task]]\nname = "a"\nperiods = 3\n'],
    "schedule": ['[layers.conv]\norder = "x"\n', "[layers.conv]\nrow = 3\n", "layer = 3\n"],
    "cost": ['description = "a"\n'],
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_wrong_files_do_not(kind: str) -> None:
    validator = jsonschema.Draft202012Validator(_schema(kind))
    for text in REFUSED[kind]:
        assert not validator.is_valid(tomllib.loads(text)), text


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_prints_a_schema(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", kind]) == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))


def test_one_value_may_stand_for_a_list() -> None:
    validator = jsonschema.Draft202012Validator(_schema("sweep"))
    assert validator.is_valid({"networks": "digits-cnn", "isa": "v4", "schedules": "seed"})
    assert validator.is_valid({"networks": ["digits-cnn"], "isa": ["v4"]})
    assert not validator.is_valid({"networks": []})


def test_an_unknown_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "machines"]) == 2
    assert capsys.readouterr().err == (
        "error: unknown kind 'machines'; did you mean machine? choose one of machine, sweep, "
        "machine-sweep, system, schedule, cost\n"
    )
