"""Machines with banked memory: accepted sizes, one-line errors, and unchanged other machines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from byoc.compiler import compile
from byoc.importing import import_model
from dla_sim.device import Device
from dla_sim.presets import apply_settings, load_hardware, load_preset, preset_names, preset_toml
from dla_sim.rtl.parameters import limits_of
from dla_sim.timing import Timing
from experiments.models.builder import NetworkBuilder
from experiments.sweep.grid import Grid
from experiments.sweep.spec import parse_spec
from isa.arch import IDEAL, WORD_KEYS, Arch, BankedMemory, PeArray, flat
from isa.assembler import assemble
from isa.errors import InputError
from isa.program import Program
from isa.program_file import from_bytes, save, to_bytes
from isa.sanitizer import sanitize
from tests.experiments.command_line import dla

DIGESTS = {
    Arch(): "c9ca48762479a7ff",
    Arch(isa="v4"): "fb57bfdd9e648080",
    Arch(isa="v1", numerics="fixed", post_lanes=8): "f339b9a7f103ada8",
}
"""Those of machines without words, from before there were any."""


def test_machines_without_words_are_written_as_before() -> None:
    for arch, digest in DIGESTS.items():
        assert arch.digest() == digest
        assert not {*WORD_KEYS} & {*arch.model_dump()}
        assert arch.words is None


def test_a_machine_writes_the_words_that_it_chooses() -> None:
    assert not {*WORD_KEYS} & {*Arch(isa="v5").model_dump()}
    chosen = Arch(isa="v5", atom=16, divide_cycles=7)
    assert {*WORD_KEYS} & {*chosen.model_dump()} == {"atom", "divide_cycles"}
    assert Arch.model_validate_json(chosen.to_json()) == chosen
    assert {*WORD_KEYS} <= {*flat(dict(Arch()))}


FITTED = {
    (8, 8, 1): BankedMemory(8, 32, 32, 4, 16),
    (4, 16, 1): BankedMemory(8, 32, 32, 4, 16),
    (16, 16, 1): BankedMemory(8, 64, 32, 4, 16),
    (32, 32, 1): BankedMemory(8, 128, 32, 4, 16),
    (64, 1, 1): BankedMemory(8, 256, 32, 4, 16),
    (7, 13, 1): BankedMemory(8, 32, 32, 4, 16),
    (1, 256, 1): BankedMemory(8, 128, 32, 4, 16),
    (3, 5, 3): BankedMemory(8, 128, 32, 4, 16),
}


@pytest.mark.parametrize("array", FITTED)
def test_words_fit_the_array(array: tuple[int, int, int]) -> None:
    arch = Arch(isa="v5", pe=PeArray(ic=array[0], oc=array[1], ow=array[2]))
    assert arch.words == FITTED[array]
    assert arch.granule == FITTED[array].word
    assert arch.lanes == min(arch.pe.count, FITTED[array].word)
    assert Arch(isa="v4", pe=arch.pe).lanes == arch.pe.count


def test_a_copy_with_another_array_has_other_words() -> None:
    arch = Arch(isa="v5")
    assert arch.words is not None
    larger = arch.model_copy(update={"pe": PeArray(ic=32, oc=8)})
    assert larger.words is not None
    assert (arch.words.atom, larger.words.atom, larger.words.word) == (8, 8, 128)


def test_keys_of_operands_differ_unless_only_the_scratchpad_does() -> None:
    """A machine whose key is known is the same machine, and its copies have their own keys."""
    arch = Arch(isa="v5")
    key = arch.operand_key
    assert arch.model_copy(update={"sram_bytes": 4096, "sram_banks": 8}).operand_key == key
    assert arch.model_copy(update={"atom": 4}).operand_key != key
    assert arch.same_machine(Arch(isa="v5"))


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_can_have_words(name: str) -> None:
    hardware = load_hardware(name, isa="v5")
    assert hardware.arch.words is not None
    assert "\n" not in hardware.arch.to_json()


REFUSED = {
    "atom=12": "atom is 12; it must be a power of two, 16 would do",
    "word_bytes=48": "word_bytes is 48; it must be a power of two, 64 would do",
    "pe.ow=3 word_bytes=16": "word_bytes 16 is less than the atoms of pe.ow columns; 32 would do",
    "sram_banks=3": "is not a multiple of sram_banks 3 of word_bytes 32; sram_bytes 524352 or "
    "sram_banks 2 would do",
    "sram_bytes=1000": "sram_bytes 1000 is not a multiple of sram_banks 16 of word_bytes 32; "
    "sram_bytes 1024 would do",
    "bus_bytes=32 word_bytes=32": "bus_bytes 16 or word_bytes 64 would do",
    "atom=4": "atom is 4: should be greater than or equal to 8",
    "dividers=0": "dividers is 0: should be greater than or equal to 1",
    "accumulators=no": "setting accumulators=no: 'no' is not an integer; write one: 8, or 64KiB",
}


@pytest.mark.parametrize("settings", REFUSED)
def test_words_that_do_not_fit_are_one_line_with_what_would(
    settings: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word for setting in settings.split() for word in ("--set", setting)]
    outcome = dla(capsys, "run", "digits-cnn", "--isa", "v5", *given)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.endswith(f"{REFUSED[settings]}\n")
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("settings", [text for text in REFUSED if "would do" in REFUSED[text]])
def test_what_would_do_does(settings: str) -> None:
    given = dict(setting.split("=") for setting in settings.split())
    would = REFUSED[settings].removesuffix(" would do").rpartition("; ")[2].rpartition(", ")[2]
    for text in would.split(" or "):
        key, _, value = text.rpartition(" ")
        load_hardware(
            None,
            given | {key or next(key for key in given if key.startswith(("atom", "word"))): value},
            "v5",
        )


def program_of(arch: dict[str, object]) -> Program:
    return assemble(f".arch {json.dumps(arch)}\n.memory 64 commands 0\nOP_END")


def test_the_keys_of_another_layout_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The keys in which the machines differ, those of words as they fit.

    What is said otherwise is one machine.
    """
    for made, given, said in (
        ("v4", ["--isa", "v5"], "isa is v4 there and v5 here"),
        ("v5", ["--isa", "v4"], "isa is v5 there and v4 here"),
        (
            "v5",
            ["--set", "atom=16"],
            "atom is 8 there and 16 here, word_bytes is 32 there and 64 here",
        ),
        (
            "v5",
            ["--set", "pe.ow=2"],
            "pe.ow is 1 there and 2 here, word_bytes is 32 there and 64 here",
        ),
    ):
        save(program_of({"isa": made}), tmp_path / "a.prog")
        outcome = dla(capsys, "simulate", str(tmp_path / "a.prog"), *given)
        assert outcome.status == 2
        assert outcome.err.endswith(
            f"was made for another Arch: {said}; emit it again for this machine\n"
        )
    assert (
        dla(
            capsys, "simulate", str(tmp_path / "a.prog"), "--set", "atom=8", "--set", "dividers=4"
        ).status
        == 0
    )
    Device(Arch(isa="v5", word_bytes=32)).load(program_of({"isa": "v5"}))


def test_assembly_of_words_that_do_not_fit_says_why() -> None:
    for arch, said in (
        (
            {"isa": "v5", "atom": 12},
            r"line 1: .arch: atom is 12; it must be a power of two, 16 would do",
        ),
        (
            {"isa": "v4", "atom": 8},
            r"line 1: .arch: atom is a key of v5, not of v4; leave it out or choose isa v5",
        ),
        ({"atoms": 8}, r"line 1: .arch: atoms: Extra inputs are not permitted"),
    ):
        with pytest.raises(InputError, match=said):
            program_of(arch)


def test_what_fits_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "a power of two; none: 8" in dla(capsys, "settings", "--csv", "-").out
    text = preset_toml(load_hardware("balanced-256"))
    assert "# atom = none  # bytes: " in text
    assert [line.rpartition("; here ")[2] for line in text.splitlines() if "; here " in line] == [
        "8", "64", "32", "4", "16",
    ]  # fmt: skip
    assert "; here " not in preset_toml(load_hardware("balanced-256", isa="v4"))


def test_presets_have_the_memory_that_their_place_asks_for() -> None:
    """The recommended machines have banked memory; others, and any with ``--isa v4``, ideal."""
    banked = {name for name in preset_names() if load_preset(name).arch.words is not None}
    assert banked == {"balanced-64", "balanced-256", "ethos-u55-256", "ethos-u85-256"}
    for name in banked:
        ideal = load_hardware(name, isa="v4").arch
        assert ideal.memory == IDEAL
        assert not {*WORD_KEYS} & {*ideal.model_dump()}


def test_words_of_the_default_size_have_two_beats_of_the_bus() -> None:
    assert load_hardware("balanced-64", ["bus_bytes=32"]).arch.word_bytes == 64
    assert load_hardware("nvdla-small-like", ["bus_bytes=32"], "v5").arch.word_bytes == 64
    assert load_hardware("balanced-64").arch.words == BankedMemory(8, 32, 32, 4, 16)
    assert load_hardware("balanced-256").arch.words == BankedMemory(8, 64, 32, 4, 16)
    chosen = load_hardware("balanced-64", ["word_bytes=64", "bus_bytes=32"])
    assert chosen.arch.word_bytes == 64
    with pytest.raises(InputError, match=r"bus_bytes 32 or word_bytes 128 would do"):
        apply_settings(chosen, ["bus_bytes=64", "burst_bytes=64"])


def test_keys_of_words_are_for_machines_of_words() -> None:
    for key in WORD_KEYS:
        with pytest.raises(InputError) as error:
            load_hardware("nvdla-small-like", [f"{key}=16"])
        assert str(error.value) == (
            f"setting {key}=16: {key} is a key of v5, not of v4; leave it out or choose isa v5"
        )
        for name in ("nvdla-small-like", "balanced-64"):
            assert load_hardware(name, [f"{key}=none"]) == load_preset(name)


def test_a_printed_machine_of_words_is_the_same_machine(tmp_path: Path) -> None:
    hardware = load_hardware("balanced-64", ["atom=16", "accumulators=64"])
    (tmp_path / "words.toml").write_text(preset_toml(hardware))
    again = load_preset(str(tmp_path / "words.toml"))
    assert (again.arch, again.timing) == (hardware.arch, hardware.timing)


def test_a_device_needs_two_beats_a_word() -> None:
    with pytest.raises(InputError, match=r"bus_bytes 16 or word_bytes 64 would do"):
        Device(Arch(isa="v5"), Timing(bus_bytes=32))
    Device(Arch(isa="v5", word_bytes=64), Timing(bus_bytes=32))


@pytest.mark.parametrize("channels", [3, 5])
def test_the_compiler_packs_what_enters_and_leaves(channels: int) -> None:
    """An image of 3 channels gets atoms of 4 bytes; other tensors get those of the machine."""
    net = NetworkBuilder("one", "x", (1, channels, 4, 4), 0)
    package = import_model(
        net.model(net.convolution("y", "x", (channels, 12), 1, bias=0.0), (1, 12, 4, 4))
    )
    (program,) = compile(package, Arch(isa="v5")).programs.values()
    shapes = {tensor.role: tensor.shape for tensor in program.tensors}
    assert shapes == {"input": (1, 16, 4 if channels == 3 else 8), "output": (2, 16, 8)}


def test_there_is_no_hardware_of_words_yet(capsys: pytest.CaptureFixture[str]) -> None:
    said = (
        "isa v5: dla writes hardware only for machines with ideal memory; use --isa v4 or "
        "--preset nvdla-small-like"
    )
    with pytest.raises(InputError) as error:
        limits_of(Arch(isa="v5"), Timing())
    assert str(error.value) == said
    outcome = dla(capsys, "rtl", "synth")
    assert (outcome.status, outcome.err) == (2, f"error: {said}\n")
    for remedy in (load_hardware(isa="v4"), load_preset("nvdla-small-like")):
        limits_of(remedy.arch, remedy.timing)


PROGRAM = """
.program "add"
.arch {"isa": "v5"}
.memory 64 commands 0
SET EX_LENGTH, 8
SET EX_OPERAND_ADDRESS, 0x20
SET EX_OUTPUT_ADDRESS, 0x40
OP_C_MAX
OP_END
"""


def test_a_program_by_hand_is_assembled_filed_and_run() -> None:
    program = assemble(PROGRAM, "by hand")
    again = from_bytes(to_bytes(program), "file")
    assert again.arch == Arch(isa="v5")
    assert np.array_equal(again.words, program.words)
    assert [command.instruction.mnemonic for command in again.commands] == ["OP_C_MAX", "OP_END"]
    Device(program.arch).run(program, {})


def test_a_program_of_another_layout_is_refused_by_name() -> None:
    program = assemble(PROGRAM, "by hand")
    with pytest.raises(
        InputError,
        match=r"^program 'add' is for another machine: its Arch .* has isa = v5, the device's",
    ):
        Device(Arch(isa="v4")).load(program)
    with pytest.raises(
        InputError,
        match=r"has atom = 8, the device's .* has 16; compile the program for this device",
    ):
        Device(Arch(isa="v5", atom=16)).load(program)


def test_an_instruction_without_packed_operands_is_not_of_v5() -> None:
    with pytest.raises(InputError, match=r"OP_REQUANT"):
        assemble(PROGRAM.replace("OP_C_MAX", "OP_REQUANT"), "by hand")


@pytest.mark.parametrize(
    "operation", ["OP_SOFTMAX", "OP_NORM", "OP_REDUCE", "OP_DYN_MAT_MUL requantise=1"]
)
def test_a_result_over_the_last_atoms_of_an_operand_is_found(operation: str) -> None:
    """40 rows of 12 are 480 bytes plainly, and 640 in two atoms of 8."""
    settings = (
        "SET EX_ROWS, 40\nSET EX_INPUT_CHANNELS, 12\nSET EX_LENGTH, 1\nSET EX_OUTPUT_CHANNELS, 12\n"
    )
    for address, found in ((0x200, True), (0x280, False)):
        body = (
            f"{settings}SET EX_OPERAND_ADDRESS, 0x8000\nSET EX_OUTPUT_ADDRESS, "
            f"{address}\n{operation}\nOP_END\n"
        )
        program = assemble(f'.arch {{"isa": "v5"}}\n.memory 0x4000 commands 0x0\n{body}')
        assert ("operand overwritten" in {finding.kind for finding in sanitize(program)}) == found


@pytest.mark.parametrize(
    ("timing", "words"),
    [("", [None]), ("bus_bytes = 32", [64]), ("bus_bytes = [8, 16, 64]", [None, 128])],
)
def test_machines_of_a_sweep_get_words_as_wide_as_those_of_a_run(
    timing: str, words: list[int | None]
) -> None:
    spec = parse_spec(f'networks = "digits-cnn"\nisa = ["v4", "v5"]\n[timing]\n{timing}\n')
    batches = list(Grid(spec).batches())
    assert [batch.arch.get("word_bytes") for batch in batches] == [None, *words]
    for batch in batches:
        for _, given in batch:
            run = load_hardware(None, [f"bus_bytes={given['bus_bytes']}"], batch.arch["isa"])
            assert run.arch == Arch.model_validate(batch.arch)


def test_words_are_axes_of_sweeps() -> None:
    spec = (
        'networks = "digits-cnn"\nisa = ["v4", "v5"]\narch.atom = [8, 16]\nconstraints = ["atom > '
        '8"]\n'
    )
    batches = list(Grid(parse_spec(spec)).batches())
    assert [(batch.arch["isa"], batch.arch["atom"]) for batch in batches] == [
        ("v4", 16),
        ("v5", 16),
    ]
    plain = next(iter(Grid(parse_spec('networks = "digits-cnn"\n')).batches()))
    assert not {*WORD_KEYS} & {*plain.arch}
