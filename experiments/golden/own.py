"""A case of the user's own: a program in a file, and its input tensors."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dla_sim.presets import Preset, apply_settings
from dla_sim.timing import Timing
from experiments.golden.case import Case
from experiments.simulate import program_inputs
from isa import program_file
from isa.assembler import assemble
from isa.errors import InputError
from isa.program import Program


def own_case(file: Path, name: str, tensors: Iterable[str], settings: Iterable[str]) -> Case:
    """The program in ``file`` (binary, or assembly text) with its ``tensors`` ("NAME=FILE.npy").

    ``settings`` ("key=value") are of the Timing. Raises InputError for a file that is no program, a tensor that is
    missing, and a setting that would change the Arch, which the program names.
    """
    program = _program(file)
    base = Preset(name="program", arch=program.arch, timing=Timing())
    hardware = apply_settings(base, settings)
    if hardware.arch != base.arch:
        raise InputError(f"{file}: the program names its Arch; only settings of the timing can be given")
    inputs = {key: array.tobytes() for key, array in program_inputs(program, tensors).items()}
    return Case(name, f"recorded from {file.name}", program, inputs, hardware.timing.model_dump())


def _program(file: Path) -> Program:
    if not file.is_file():
        raise InputError(f"{file}: no such file; 'dla emit' and 'dla asm' make programs")
    content = file.read_bytes()
    if content.startswith(program_file.MAGIC):
        return program_file.load(file)
    try:
        return assemble(content.decode(), str(file))
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: neither a program nor assembly text") from error
