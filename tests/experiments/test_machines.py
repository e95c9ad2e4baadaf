"""``dla presets`` and ``dla settings``, results on standard output, and shell completion."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dla_sim.presets import (
    MEMORY_MODES,
    SETTING_KEYS,
    list_settings,
    load_preset,
    preset_names,
    preset_toml,
)
from dla_sim.timing import Timing
from experiments.cli.main import COMMANDS
from experiments.machines.discovery import list_machines
from isa.arch import Arch, flat
from tests.experiments.command_line import dla


def test_every_key_has_a_unit_or_is_a_word_and_a_meaning() -> None:
    found = list_settings()
    assert sorted(setting.key for setting in found) == sorted(SETTING_KEYS)
    assert all(setting.meaning for setting in found)
    assert [setting.key for setting in found if not setting.unit] == ["isa", "numerics"]
    defaults = flat(dict(Arch())) | flat(dict(Timing()))
    assert {setting.key: setting.default for setting in found} == defaults


def test_units_are_those_of_the_machine_description() -> None:
    text = (Path(__file__).parents[2] / "docs" / "machine.md").read_text("utf-8")
    described = dict(re.findall(r"^\| `(\w+)` \| (?:\d+|none) \| ([^|]+?) \|", text, re.MULTILINE))
    assert described == {
        setting.key: setting.unit for setting in list_settings() if setting.table == "timing"
    }


@pytest.mark.parametrize("name", preset_names())
def test_a_printed_preset_is_the_same_machine(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dla(capsys, "presets", name)
    assert (found.status, found.err) == (0, "")
    assert found.out == preset_toml(load_preset(name))
    path = tmp_path / f"{name}.toml"
    path.write_text(found.out, "utf-8")
    assert load_preset(str(path)) == load_preset(name)


def test_what_is_no_word_is_printed_as_it_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.toml"
    path.write_text(
        'description = "a \\"quoted\\" µ\\\\"\n[arch]\npost_lanes = 3\nsram_bytes = "1 MiB"\n',
        "utf-8",
    )
    again = tmp_path / "again" / "odd.toml"
    again.parent.mkdir()
    again.write_text(dla(capsys, "presets", str(path)).out, "utf-8")
    assert load_preset(str(again)) == load_preset(str(path))


def test_settings_and_presets_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(dla(capsys, "settings", "--csv", "-").out)))
    assert [row["key"] for row in rows] == [setting.key for setting in list_settings()]
    assert json.loads(dla(capsys, "settings", "--json", "-").out)[0]["key"] == rows[0]["key"]
    presets = list(csv.DictReader(io.StringIO(dla(capsys, "presets", "--csv", "-").out)))
    others = (name for name, machine in list_machines().items() if machine.kind != "preset")
    names = [*preset_names(), *others]
    assert [row["name"] for row in presets] == names
    assert {*SETTING_KEYS} <= presets[0].keys()
    written = json.loads(dla(capsys, "presets", "--json", "-").out)
    assert [item["name"] for item in written] == names


def test_memory_modes_are_listed_with_the_presets(capsys: pytest.CaptureFixture[str]) -> None:
    shown = dla(capsys, "presets").out
    for mode in MEMORY_MODES:
        assert f" {mode.name} " in shown


def test_an_unknown_preset_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = dla(capsys, "presets", "balanced-65")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith(
        "error: unknown preset 'balanced-65'; did you mean balanced-64? choose one of "
    )
    assert found.err.count("\n") == 1


def test_two_results_cannot_both_be_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    found = dla(capsys, "settings", "--json", "-", "--csv", "-")
    assert (found.status, found.out) == (2, "")
    assert found.err == "error: --json and --csv both write -; give each a file of its own\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("dla pres", ["presets"]),
        ("dla r", ["run", "report", "runs", "repro", "rtl"]),
        ("dla run digits", ["digits-cnn", "digits-model.onnx"]),
        ("dla run digits-cnn --preset balanced-2", ["balanced-256"]),
        ("dla run digits-cnn --set sram_b", ["sram_bytes=", "sram_banks="]),
        ("dla run digits-cnn --memory-mode f", ["flash"]),
        ("dla presets seed-i", ["seed-i128", "seed-i64"]),
    ],
)
def test_shells_complete(words: str, offered: list[str], tmp_path: Path) -> None:
    (tmp_path / "digits-model.onnx").touch()
    asked = {
        "_DLA_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = subprocess.run(
        [sys.executable, "-c", COMPLETE],
        cwd=tmp_path,
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    command = words.split()[1]
    imported = [command] if command in COMMANDS else []
    if command == "presets":
        imported = ["catalogue"]
    assert (done.stdout.split(), done.stderr.split()) == (offered, imported)


COMPLETE = """
import sys
from experiments.cli.main import COMMANDS, main
status = main([])
files = {place.partition(":")[0] for place in COMMANDS.values()}
print(*sorted(one for one in files if f"experiments.cli.{one}" in sys.modules), file=sys.stderr)
sys.exit(status)
"""
"""Program that completes a command line and prints the files of commands that it imported."""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_shown(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shellingham.detect_shell", lambda: (shell, f"/bin/{shell}"))
    found = dla(capsys, "--show-completion")
    assert (found.status, found.err) == (0, "")
    assert "_DLA_COMPLETE" in found.out


@pytest.mark.parametrize("command", ["run", "golden", "presets", ""])
def test_h_is_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [command] if command else []
    assert dla(capsys, *words, "-h") == dla(capsys, *words, "--help")
    assert dla(capsys, *words, "-h").out
