"""Options of ``dla generate``. This module imports little because ``dla --help`` reads it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from byoc.options import DEFAULTS, CompileOptions
from experiments.running.declared import option, same
from experiments.running.given import Fixed, Given, MachineChoice, NetworkChoice
from isa.progress import Progress, silent


@dataclass(frozen=True, eq=False, kw_only=True)
class GenerateRequest(NetworkChoice, MachineChoice):
    """Request of ``dla generate`` and ``dla.generate``."""

    prompt_tokens: int | None = field(
        default=None,
        metadata=option(
            "--prompt-tokens",
            "Set the length of the prompt. Default: 32, or the length of --prompt.",
            int,
            metavar="N",
            panel="Network",
            least=1,
        ),
    )
    tokens: int = field(
        default=64,
        metadata=option(
            "--tokens", "Set the number of new tokens.", int, metavar="M", panel="Network", least=1
        ),
    )
    prompt: str | Path | Sequence[int] | None = field(
        default=None,
        metadata=option(
            "--prompt",
            "Read the tokens of the prompt from a file. Default: drawn from the seed.",
            Path,
            metavar="FILE.npy",
            panel="Network",
        ),
    )
    prefill: Sequence[int] = field(
        default=(),
        metadata=option(
            "--prefill",
            "Also run this many first tokens of the prompt as a prompt. Repeatable.",
            list[int],
            metavar="LENGTH",
            panel="Network",
            parse=tuple,
            texts=lambda lengths: list(map(str, lengths)),
        ),
    )
    fixed: Fixed | None = field(default=None, metadata=same(Given, "fixed"))
    seed: int = field(default=0, metadata=same(Given, "seed"))
    options: CompileOptions = DEFAULTS
    progress: Progress = silent


@dataclass(frozen=True, eq=False, kw_only=True)
class GenerateKeywords(GenerateRequest, CompileOptions, NetworkChoice):
    """Keywords of ``dla.generate``: the request's fields and each compile option."""
