"""``dla generate``: tokens of a decoder, checked, with the cycles of every position."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.cli import options, results
from experiments.generation.request import GenerateRequest
from experiments.literal import say

if TYPE_CHECKING:
    from experiments.generation.generating import Generation, GenerationStep

SHOWN = 12
"""Most rows of the table on the screen, spread over all positions."""


@options.expand_options
def command(wanted: GenerateRequest, json: options.Json = None, csv: options.Csv = None) -> int:
    """Generate tokens with a decoder, check each, and show the cycles of every position.

    The decoder has a cache of keys and values that grows by position. It is quantised once. Tokens
    are those with the largest logits, and are compared with ONNX Runtime on the integer model.
    """
    from experiments.generation.generating import generate_requested

    with options.stages() as progress:
        found = generate_requested(replace(wanted, progress=progress))
    results.write_tables(json, csv, found.content(), found.records())
    _print(found)
    return results.report_difference(str(found)) if found.different or found.mismatches else 0


def _print(found: Generation) -> None:
    from experiments.report.terminal import plain_table, print_parts

    columns = ("tokens", "position", "cycles", "CPU cycles", "µs", "tokens/s", "bytes read",
               "written", "of the cache")  # fmt: skip
    table = plain_table(
        ("phase", "left"),
        *((name, "right") for name in columns),
        title=f"{found.model} on {found.machine['name']}",
        rows=map(_row, _choose_rows(found.steps)),
    )
    print_parts(table)
    say(f"tokens       {', '.join(map(str, found.tokens))}")
    say(
        f"check        {len(found.tokens)} tokens compared with ONNX Runtime on the integer model, "
        f"{found.different} differ; {found.mismatches} mismatches in {found.elements:,} logits, "
        "keys and values"
    )
    say(f"float        {found.float_agreement} of {len(found.tokens)} tokens as in the float model")
    if not options.is_quiet():
        say(f"time         {found.token_seconds:.2f} s of processor time a token, to compile, "
            "simulate and check it")  # fmt: skip


def _choose_rows(steps: tuple[GenerationStep, ...]) -> list[GenerationStep]:
    """Return all prompts, and some positions including the first and the last."""
    prompts = [step for step in steps if step.phase == "prefill"]
    tokens = [step for step in steps if step.phase != "prefill"]
    every = -(-len(tokens) // SHOWN) or 1
    return [*prompts, *tokens[:-1:every], *tokens[-1:]]


def _row(step: GenerationStep) -> tuple[str, ...]:
    return (
        step.phase,
        f"{step.length:,}",
        f"{step.position:,}",
        f"{step.cycles:,}",
        f"{step.cpu_cycles:,}",
        f"{step.seconds * 1e6:,.1f}",
        f"{step.tokens_per_second:,.1f}",
        f"{step.read_bytes:,}",
        f"{step.written_bytes:,}",
        f"{step.cache_read_bytes + step.cache_written_bytes:,}",
    )
