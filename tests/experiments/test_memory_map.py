"""Memory map of the scratchpad against a count byte by byte, its limit, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from dla_sim.engine.times import completion_order
from experiments.report import figures as module
from experiments.report.figures import RegionRun, memory_map
from experiments.report.memory import MemoryMap
from experiments.report.schema import RunReport
from experiments.running.inference import run
from isa.access import Access
from tests.experiments.reporting import tiny_run
from tests.experiments.test_report_occupancy import random_run


def touched(accesses: tuple[Access, ...]) -> np.ndarray:
    """Every byte of the scratchpad that ``accesses`` touch."""
    rows = [
        np.arange(first, end)
        for access in accesses
        if access.space == "sram"
        for first, end in access.runs()
    ]
    return np.unique(np.concatenate(rows)) if rows else np.zeros(0, np.int64)


def resident_bytes(found: RegionRun) -> list[tuple[int, int, int]]:
    """Each written byte with the start of its write and the end of its last read."""
    trace = found.trace
    start, end = trace.times.start, trace.times.end
    last: dict[int, list[int]] = {}
    spans = []
    for number in completion_order(trace.workload, trace.times):
        operands = trace.prepared.operands[number]
        for byte in touched(operands.reads).tolist():
            if byte in last:
                last[byte][1] = int(end[number])
        for byte in touched(operands.writes).tolist():
            if byte in last:
                spans.append((byte, *last[byte]))
            last[byte] = [int(start[number]), int(end[number])]
    return [*spans, *((byte, *span) for byte, span in last.items())]


def covers(found: MemoryMap, byte: int, begin: int, end: int) -> bool:
    return any(
        block.address <= byte < block.address + block.bytes
        and block.begin <= begin
        and end <= block.end
        for block in found.blocks
    )


@pytest.mark.parametrize("seed", range(8))
def test_every_byte_is_in_a_block_as_long_as_it_is_needed(seed: int) -> None:
    one = random_run(seed)
    found = memory_map([one], ())
    spans = resident_bytes(one)
    assert (found is None) == (not spans)
    if found is None:
        return
    assert not found.omitted
    assert [span for span in spans if not covers(found, *span)] == []
    written = {byte for byte, _, _ in spans}
    for block in found.blocks:
        assert {block.address, block.address + block.bytes - 1} <= written
        assert block.begin in {begin for _, begin, _ in spans}
        assert block.end in {end for _, _, end in spans}


def test_a_long_run_lists_its_largest_blocks_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run("resnet-8").report.memory
    assert whole is not None
    assert (whole.omitted, whole.share) == (0, 1.0)
    monkeypatch.setattr(module, "MEMORY_BLOCKS", 7)
    part = run("resnet-8").report.memory
    assert part is not None
    sizes = sorted((block.byte_cycles for block in whole.blocks), reverse=True)
    assert sorted((block.byte_cycles for block in part.blocks), reverse=True) == sizes[:7]
    assert part.omitted == len(whole.blocks) - 7
    assert part.share == sum(sizes[:7]) / sum(sizes)


def test_blocks_have_the_names_of_layers_and_roles() -> None:
    report = run("resnet-8").report
    assert report.memory is not None
    named = {(report.layers[block.layer].name, block.role) for block in report.memory.blocks}
    assert {("stem", "input"), ("stem", "weights"), ("stem", "result")} <= named
    assert ("block1_add", "weights") not in named


@pytest.mark.parametrize(("key", "value"), [("end", 10**9), ("bytes", 10**9), ("layer", 99)])
def test_a_report_refuses_blocks_outside_of_the_run(key: str, value: int) -> None:
    content = tiny_run().model_dump(mode="json", by_alias=True)
    content["memory"]["blocks"][0][key] = value
    with pytest.raises(ValidationError, match="is not within the run"):
        RunReport.model_validate(content)
