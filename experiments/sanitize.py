"""Findings on the command streams of a file: a program's own, or those that a package compiles to for a machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from byoc.options import CompileOptions
from byoc.pipeline import compile as compile_network
from experiments.config import load_hardware
from experiments.network import is_package, load_network
from experiments.simulate import image_segments
from isa import program_file
from isa.verify.sanitizer import sanitize
from isa.verify.sanitizer_findings import Finding

Findings = dict[str, tuple[Finding, ...]]


def sanitize_package(
    file: Path, preset: str | None, settings: Iterable[str], isa: str | None, options: CompileOptions
) -> Findings:
    """Findings on the program of every region, by the program's name."""
    hardware = load_hardware(preset, settings, isa)
    compiled = compile_network(load_network(str(file)).package, hardware.arch, options)
    return {program.name: sanitize(program) for program in compiled.programs.values()}


def sanitize_program(file: Path, images: Iterable[str]) -> Findings:
    """Findings on the program in ``file``, by its name; ``images`` are written to system memory before the run."""
    program = program_file.load(file)
    return {program.name: sanitize(program, image_segments(program, images))}


def print_findings(
    file: Path,
    preset: str | None,
    settings: Iterable[str],
    isa: str | None,
    options: CompileOptions,
    images: Iterable[str],
) -> bool:
    """Print the findings on a package or a program, one a line, and their number; whether any is an error."""
    found = (
        sanitize_package(file, preset, settings, isa, options) if is_package(file) else sanitize_program(file, images)
    )
    for name, findings in found.items():
        for finding in findings:
            print(f"{name}: {finding.text}")
    count = sum(len(findings) for findings in found.values())
    said = f"{count or 'no'} finding{'s' * (count != 1)}"
    print(f"{file}: {said} on {len(found)} command stream{'s' * (len(found) != 1)}")
    return any(finding.level == "error" for findings in found.values() for finding in findings)
