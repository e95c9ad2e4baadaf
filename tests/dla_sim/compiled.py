"""Programs of whole networks, compiled once in a test session."""

from __future__ import annotations

from functools import cache
from typing import Literal

from byoc.compiler import compile as compile_network
from experiments.running.network import load_network
from isa.arch import Arch
from isa.program import Program

COMPILED: tuple[tuple[str, Literal["seed", "default"]], ...] = (
    ("digits-cnn", "seed"),
    ("digits-cnn", "default"),
    ("mobilenet-v1", "seed"),
    ("mobilenet-v1", "default"),
)
"""(network, schedule) of the programs that timing is tested on."""


@cache
def compiled_program(network: str, schedule: Literal["seed", "default"]) -> Program:
    """The program of a built-in network of one region for the default Arch."""
    package = load_network(network).package
    (program,) = compile_network(package, Arch(), schedule=schedule).programs.values()
    return program
