"""Compiled networks and advice from the cache equal fresh ones; any changed input misses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from byoc import compiler
from byoc.compiled import CompiledNetwork, HostPart
from byoc.options import CompileOptions
from experiments.running import answers, package_cache
from experiments.running.given import RunRequest
from experiments.running.inference import hardware_of, infer, run_requested
from experiments.running.network import load, network_feeds
from experiments.running.package_cache import users_cache
from isa import memory, program_file
from isa.program import Program
from tests.experiments.command_line import save_tiny

SMALL = ("sram_bytes=512",)
"""A machine on which some operators of ResNet-8 do not fit."""


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Save a small float model; the cache is in the same folder."""
    monkeypatch.delenv("DLA_NO_CACHE", raising=False)
    monkeypatch.setenv("DLA_CACHE_DIR", str(tmp_path / "cache"))
    return str(save_tiny(tmp_path))


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[CompiledNetwork]:
    """Return a list of the networks that the compiler compiles from now on."""
    made: list[CompiledNetwork] = []
    compiled = compiler.compile

    def count(*given: object, **more: object) -> CompiledNetwork:
        made.append(compiled(*given, **more))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(compiler, "compile", count)
    return made


def compile_cached(wanted: RunRequest) -> CompiledNetwork:
    network, hardware = load(wanted), hardware_of(wanted)
    feeds = network_feeds(network)
    return infer(
        network, hardware, feeds, wanted.options, cache=answers.is_cacheable(wanted)
    ).compiled


@pytest.mark.parametrize(
    "changes",
    [{}, {"settings": SMALL}, {"options": CompileOptions(integer_io=True, schedule="seed")}],
    ids=["default", "no room", "integers"],
)
def test_a_cached_network_equals_a_fresh_one(
    model: str, compilations: list[CompiledNetwork], changes: dict[str, object]
) -> None:
    wanted = RunRequest(model="resnet-8" if "settings" in changes else model, **changes)  # type: ignore[arg-type]
    compile_cached(wanted)
    again = compile_cached(wanted)
    (fresh,) = compilations
    assert list(map(program_file.to_bytes, again.programs.values())) == list(
        map(program_file.to_bytes, fresh.programs.values())
    )
    assert again.reports == fresh.reports
    assert again.partition.placement == fresh.partition.placement
    assert again.partition.shortages == fresh.partition.shortages
    assert bool(fresh.partition.shortages) == ("settings" in changes)
    for ours, theirs in zip(again.partition.parts, fresh.partition.parts, strict=True):
        assert [node.name for node in ours.nodes] == [node.name for node in theirs.nodes]
        assert (ours.inputs, ours.outputs) == (theirs.inputs, theirs.outputs)
        if not isinstance(ours, HostPart):
            assert not isinstance(theirs, HostPart)
            assert replace(theirs, operations=ours.operations, nodes=ours.nodes).guards == (
                ours.guards
            )


def test_another_limit_of_memory_misses_the_cache(
    model: str, compilations: list[CompiledNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler checks the limit."""
    compile_cached(RunRequest(model=model))
    monkeypatch.setenv(memory.VARIABLE, "1G")
    compile_cached(RunRequest(model=model))
    assert len(compilations) == 2


def test_a_program_of_more_memory_than_a_file_holds_is_compiled_again(
    model: str, compilations: list[CompiledNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = program_file.header_of

    def write_large_header(program: Program) -> dict[str, object]:
        return write(program) | {"dram_bytes": program_file.MAXIMUM_BYTES + 1}

    monkeypatch.setattr(program_file, "header_of", write_large_header)
    compile_cached(RunRequest(model=model))
    compile_cached(RunRequest(model=model))
    assert len(compilations) == 2


def change_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_cache, "sources_digest", lambda *folders: "other")


CHANGES: dict[str, dict[str, object]] = {
    "timing": {"settings": ("dram_latency=7",)},
    "arch": {"settings": ("sram_bytes=65536",)},
    "instruction set": {"isa": "v4"},
    "option": {"options": CompileOptions(integer_io=True)},
    "network": {"seed": 1},
    "nodes on the CPU": {"cpu": ("op:Conv",)},
    "no cache": {"cache": False},
}


@pytest.mark.parametrize("name", CHANGES)
def test_any_other_input_misses_the_cache(
    model: str, compilations: list[CompiledNetwork], name: str
) -> None:
    compile_cached(RunRequest(model=model))
    compile_cached(RunRequest(model=model))
    assert len(compilations) == 1
    compile_cached(RunRequest(model=model, **CHANGES[name]))  # type: ignore[arg-type]
    assert len(compilations) == 2


def test_other_code_misses_the_cache(
    model: str, compilations: list[CompiledNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_cached(RunRequest(model=model))
    change_code(monkeypatch)
    compile_cached(RunRequest(model=model))
    assert len(compilations) == 2


def test_the_key_has_the_code_of_the_machine(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler reads properties of Arch and Timing that their code computes."""
    read: set[str] = set()
    monkeypatch.setattr(package_cache, "sources_digest", lambda *folders: str(read.update(folders)))
    wanted = RunRequest(model=model)
    compile_cached(wanted)
    hardware = hardware_of(wanted)
    for one in (hardware.arch, hardware.timing):
        assert type(one).__module__.partition(".")[0] in read


def find_advice(wanted: RunRequest, make: Callable[[], list[tuple[float, str]]]) -> object:
    package = load(wanted).package
    hardware = hardware_of(wanted)
    return answers.find_advice(package, hardware, wanted.options, "dla run x, 9 cycles", make)


def test_advice_is_measured_once(model: str) -> None:
    first = [(1 / 3, "dla run x --set a=b")]
    wanted = RunRequest(model=model)
    assert find_advice(wanted, lambda: first) == first
    assert find_advice(wanted, list) == first
    assert find_advice(replace(wanted, settings=("dram_latency=7",)), list) == []


def test_a_damaged_answer_is_made_again(model: str, compilations: list[CompiledNetwork]) -> None:
    wanted = RunRequest(model=model)
    compile_cached(wanted)
    cache = users_cache()
    assert cache is not None
    (path,) = (path for path in cache.entries() if path.suffix == ".answer")
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    compile_cached(wanted)
    assert len(compilations) == 2


def test_the_check_is_not_cached(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run from the cache compares again: a wrong accelerator is found."""
    from byoc.host import runtime

    wanted = RunRequest(model=model)
    assert run_requested(wanted).report.check.mismatches == 0
    right = runtime.from_device
    monkeypatch.setattr(runtime, "from_device", lambda *given: right(*given) ^ 1)
    assert run_requested(wanted).report.check.mismatches > 0
