"""Generate tokens with a decoder on the accelerator, and compare each with ONNX Runtime's.

The decoder is quantised once. Its program is compiled for the prompt and for every position after
it. The cache of keys and values contains integers, to which every inference appends.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from json import dumps
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from byoc.compiled import CompiledNetwork
from byoc.compiler import compile as compile_network
from byoc.decoding.decoding import (
    LEAST_STEPS,
    LOGITS,
    Arrays,
    CachedDecoder,
    CachePair,
    DecoderOracle,
    IntegerDecoder,
    find_decoder,
    generate_in_float,
    quantise_decoder,
)
from byoc.frontend.onnx.rewriting.constants import fix_inputs
from byoc.frontend.onnx.rewriting.form import widen
from byoc.host.runtime import NetworkRun, Runtime
from byoc.host.sessions import PartSession, estimate_cycles, opener
from byoc.package.package import Package
from dla_sim.device import Device, Trace
from experiments.generation.request import GenerateKeywords, GenerateRequest
from experiments.models import MODELS
from experiments.models.decoders import DECODERS
from experiments.report.shown import data_frame
from experiments.running.door import door
from experiments.running.inference import hardware_of
from experiments.running.network import is_package, open_model
from isa import memory
from isa.errors import InputError
from isa.files import write_atomically
from isa.reading import check_file, read_npy

if TYPE_CHECKING:
    import pandas

    from dla_sim.presets import Preset

DEFAULT_PROMPT = 32
FURTHER_PROMPTS = 1
"""Number of drawn prompts for calibration, in addition to the prompt itself."""


@dataclass(frozen=True)
class GenerationStep:
    """Figures of one inference: a prompt, or one token.

    ``length`` tokens are computed behind ``position`` others. ``cycles`` are those of the
    accelerator, ``cpu_cycles`` the estimated ones of nodes on the CPU; ``seconds`` is the time of
    both. ``cache_read_bytes`` and ``cache_written_bytes`` are the parts of the moved bytes that are
    keys and values.
    """

    phase: str
    length: int
    position: int
    batch: int
    cycles: int
    cpu_cycles: int
    seconds: float
    tokens_per_second: float
    read_bytes: int
    written_bytes: int
    cache_read_bytes: int
    cache_written_bytes: int


@dataclass(frozen=True, eq=False)
class Generation:
    """Tokens that a decoder generates, and the figures of every inference.

    ``tokens`` are the accelerator's, ``oracle_tokens`` those of ONNX Runtime on the integer model,
    ``float_tokens`` those of the float model. Of ``elements`` logits, keys and values,
    ``mismatches`` differ between accelerator and ONNX Runtime. ``token_seconds`` is the mean
    processor time to compile and simulate one token.
    """

    model: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    oracle_tokens: tuple[int, ...]
    float_tokens: tuple[int, ...]
    elements: int
    mismatches: int
    steps: tuple[GenerationStep, ...]
    machine: Mapping[str, Any]
    token_seconds: float = field(compare=False, default=0.0)

    @property
    def different(self) -> int:
        """Number of tokens that differ from ONNX Runtime's on the integer model."""
        return sum(a != b for a, b in zip(self.tokens, self.oracle_tokens, strict=True))

    @property
    def float_agreement(self) -> int:
        """Number of tokens that equal the float model's."""
        return sum(a == b for a, b in zip(self.tokens, self.float_tokens, strict=True))

    @property
    def table(self) -> pandas.DataFrame:
        """Figures of every inference, as a pandas table."""
        return data_frame(self.records())

    def records(self) -> list[dict[str, Any]]:
        """Return the figures of every inference as dictionaries."""
        return [asdict(step) for step in self.steps]

    def content(self) -> dict[str, Any]:
        """Return the result as plain values for JSON; processor times are left out."""
        found = {name: value for name, value in vars(self).items() if name != "token_seconds"}
        counts = {
            "tokens_compared": len(self.tokens),
            "tokens_different": self.different,
            "tokens_as_in_float": self.float_agreement,
        }
        return found | counts | {"steps": self.records()}

    def save(self, path: str | Path) -> None:
        """Write the result as a JSON file."""
        write_atomically(Path(path), dumps(self.content(), indent=1) + "\n")

    def __str__(self) -> str:
        last = self.steps[-1]
        return (
            f"{self.model}: {len(self.tokens)} tokens compared with ONNX Runtime on the integer "
            f"model, {self.different} differ; {self.mismatches} mismatches in {self.elements:,} "
            f"logits, keys and values; {self.float_agreement} tokens as in the float model; "
            f"{last.tokens_per_second:,.4g} tokens a second at position {last.position}"
        )


def generate_requested(wanted: GenerateRequest) -> Generation:
    """Generate tokens with a decoder on a simulated machine, and compare each with ONNX Runtime.

    - ``model``: name of a built-in decoder, an .onnx file or an ONNX model with a cache of keys and
      values (inputs such as ``past_key_values.0.key``, outputs such as ``present.0.key``).
    - ``prompt_tokens``, ``tokens``: length of the prompt, and number of tokens to generate.
    - ``prompt``: tokens of the prompt, or a .npy file with them; drawn from ``seed`` by default.
    - ``prefill``: further lengths; that many first tokens of the prompt also run as a prompt.
    - ``fixed``: numbers for inputs that become constants.
    - ``preset``, ``settings``, ``isa``, ``memory_mode``, ``options``: as in :func:`dla.run`.

    Raises InputError for a network without a cache, and for a prompt that does not fit it.
    """
    hardware = hardware_of(wanted)
    if hardware.arch.numerics != "onnxruntime":
        raise InputError(
            f"numerics is {hardware.arch.numerics}, and ONNX Runtime, which checks every token, "
            "rounds otherwise; use --set numerics=onnxruntime"
        )
    name, decoder = _open_decoder(wanted)
    prompt = _read_prompt(wanted, decoder)
    lengths = _list_lengths(wanted, decoder, len(prompt))
    wanted.progress(f"running {name} in float")
    random = np.random.default_rng(wanted.seed + 1)
    drawn = random.integers(0, decoder.words, (FURTHER_PROMPTS, len(prompt)))
    count = max(wanted.tokens, LEAST_STEPS)
    found = generate_in_float(decoder, (prompt, *drawn.tolist()), count)
    samples = [feeds for _, feeds in found]
    integer = quantise_decoder(decoder, samples, lengths, name, wanted.progress)
    run = GenerationRun(wanted, hardware, decoder, integer)
    for length in lengths[1:]:
        run.start(prompt[:length])
    before = len(run.steps)
    run.start(prompt)
    begun = time.process_time()
    while len(run.tokens) < wanted.tokens:
        wanted.progress(f"generating with {name}", len(run.tokens), wanted.tokens)
        run.advance(len(prompt))
    spent = (time.process_time() - begun) / max(1, wanted.tokens - 1)
    steps = (run.steps[before], *run.steps[:before], *run.steps[before + 1 :])
    return Generation(
        name,
        prompt,
        tuple(run.tokens),
        tuple(run.oracle_tokens),
        tuple(found[0][0][: wanted.tokens]),
        run.elements,
        run.mismatches,
        steps,
        hardware.model_dump(mode="json"),
        spent,
    )


generate = door("generate", GenerateKeywords, GenerateRequest, generate_requested)


def _open_decoder(wanted: GenerateRequest) -> tuple[str, CachedDecoder]:
    model = wanted.model
    if isinstance(model, str) and model in DECODERS:
        name, opened = model, DECODERS[model][1](wanted.seed)
    elif isinstance(model, Package):
        raise InputError(f"{model.source}: a package; give the decoder's ONNX model")
    else:
        given = model if isinstance(model, ModelProto) else str(model)
        if isinstance(given, str) and Path(given).is_file() and is_package(Path(given)):
            raise InputError(f"{given}: a package; give the decoder's ONNX model")
        builtin = MODELS.get(given) if isinstance(given, str) else None
        name, opened, _ = open_model(given, builtin, wanted.seed)
    return name, find_decoder(widen(fix_inputs(opened, wanted.fixed or {}, {})), name)


def _read_prompt(wanted: GenerateRequest, decoder: CachedDecoder) -> tuple[int, ...]:
    """Return the tokens of the prompt; raise InputError for tokens that are no words."""
    given = wanted.prompt
    length = wanted.prompt_tokens
    if given is None:
        _check_positions(wanted, decoder, length or DEFAULT_PROMPT)
        random = np.random.default_rng(wanted.seed)
        drawn = random.integers(0, decoder.words, length or DEFAULT_PROMPT)
        return tuple(map(int, drawn))
    named = f"--prompt {given}" if isinstance(given, str | Path) else "prompt"
    if isinstance(given, str | Path):
        check_file(Path(given), named=named)
        array = read_npy(Path(given), named)
    else:
        array = np.asarray(given)
    row = array.reshape(-1)
    if row.dtype.kind not in "iu" or not row.size or array.size != max(array.shape, default=0):
        raise InputError(
            f"{named}: has shape {list(array.shape)} and type {array.dtype.name}; give a row of "
            "tokens, integers"
        )
    if length is not None and length > row.size:
        raise InputError(f"{named}: has {row.size} tokens; --prompt-tokens is {length}")
    for place, token in enumerate(row):
        if not 0 <= token < decoder.words:
            raise InputError(
                f"{named}: token {token} at {place} is no word; the words of the decoder are 0 to "
                f"{decoder.words - 1}"
            )
    return tuple(map(int, row[:length]))


def _list_lengths(wanted: GenerateRequest, decoder: CachedDecoder, length: int) -> tuple[int, ...]:
    """Return the lengths of all prompts, starting with the prompt whose tokens are generated."""
    _check_positions(wanted, decoder, length)
    for other in wanted.prefill:
        if not 1 <= other <= length:
            raise InputError(
                f"--prefill {other}: the prompt has {length} tokens; give 1 to {length}"
            )
    return tuple(dict.fromkeys((length, *wanted.prefill)))


def _check_positions(wanted: GenerateRequest, decoder: CachedDecoder, length: int) -> None:
    """Raise InputError if a prompt of ``length`` tokens and the new ones need too much room.

    The room is the decoder's positions, and the memory for its cache.
    """
    needed = length + wanted.tokens - 1
    if decoder.positions is not None and needed > decoder.positions:
        raise InputError(
            f"a prompt of {length} tokens and {wanted.tokens} new ones need {needed} positions, "
            f"the decoder has {decoder.positions}; give a smaller --prompt-tokens or --tokens"
        )
    row = sum(prod(pair.make_shape(1)) for pair in decoder.pairs) * np.dtype(np.float32).itemsize
    memory.require(needed * row, f"a cache of {needed} positions")


class GenerationRun:
    """State of a generation: the caches and tokens of the simulator and of the oracle."""

    def __init__(
        self,
        wanted: GenerateRequest,
        hardware: Preset,
        decoder: CachedDecoder,
        integer: IntegerDecoder,
    ) -> None:
        self.steps: list[GenerationStep] = []
        self.tokens: list[int] = []
        self.oracle_tokens: list[int] = []
        self.elements = self.mismatches = 0
        self._options = replace(wanted.options, integer_io=True)
        self._hardware = hardware
        self._decoder = decoder
        self._integer = integer
        self._oracle: DecoderOracle | None = None
        self._cache: Arrays = {}
        self._opened: dict[Any, PartSession] = {}

    def start(self, prompt: Sequence[int]) -> None:
        """Run a prompt as the first inference of a generation."""
        self._oracle = DecoderOracle(self._integer, len(prompt))
        self._cache = {}
        self._opened = {}
        package = self._integer.prompts[len(prompt)]
        assert isinstance(package.model, ModelProto)
        feeds = self._decoder.make_feeds(prompt, 0)
        found = self._run(package, package.model, feeds, "prefill", 0)
        logits = self._oracle.run(feeds)
        self._compare(found, logits)
        self._opened = {}
        self._cache = {pair.past: found[pair.new] for pair in self._decoder.pairs}
        self.tokens, self.oracle_tokens = [_best(found)], [_best(logits)]

    def advance(self, length: int) -> None:
        """Run the next token of a generation behind a prompt of ``length`` tokens."""
        assert self._oracle is not None
        position = length + len(self.tokens) - 1
        package, embedded = self._integer.bind(position)
        feeds = self._decoder.make_feeds(self.tokens[-1:], position)
        found = self._run(package, embedded, {**feeds, **self._cache}, "decode", position)
        own = self._decoder.make_feeds(self.oracle_tokens[-1:], position)
        wanted = self._oracle.run(own, embedded)
        self._compare(found, wanted)
        for pair in self._decoder.pairs:
            both = (self._cache[pair.past], found[pair.new])
            self._cache[pair.past] = np.concatenate(both, axis=pair.axis)
        self.tokens.append(_best(found))
        self.oracle_tokens.append(_best(wanted))

    def _run(
        self,
        package: Package,
        embedded: ModelProto,
        feeds: Mapping[str, NDArray[Any]],
        phase: str,
        position: int,
    ) -> Arrays:
        """Compile and simulate one inference, record its figures, and return its outputs."""
        hardware = self._hardware
        compiled = compile_network(package, hardware.arch, self._options, timing=hardware.timing)
        _check_ports(compiled, self._decoder.pairs, past=bool(position))
        device = Device(hardware.arch, hardware.timing)
        runtime = Runtime(compiled, device, opened=self._open_parts(compiled, embedded))
        done = runtime.run(feeds)
        (length,) = done.outputs[LOGITS].shape[1:2]
        self.steps.append(self._figures(compiled, done, phase, length, position))
        self._compiled = compiled
        return dict(done.outputs)

    def _open_parts(self, compiled: CompiledNetwork, embedded: ModelProto) -> Any:
        """Return a function that opens the session of a host part.

        If a part has the same names and shapes as at an earlier position, the function returns the
        session of that position. Constants that depend on the position prevent this.
        """
        graph = compiled.graph
        known = {} if self._integer.steps.constants else self._opened
        opened: list[Any] = []

        def open_part(inputs: Sequence[str], outputs: Sequence[str]) -> PartSession:
            names = (*inputs, *outputs)
            key = (*names, *(graph.values[name].shape for name in names))
            if key not in known:
                if not opened:
                    opened.append(opener(embedded, graph, compiled.arch.numerics))
                known[key] = opened[0](inputs, outputs)
            return known[key]

        return open_part

    def _figures(
        self,
        compiled: CompiledNetwork,
        done: NetworkRun[Trace],
        phase: str,
        length: int,
        position: int,
    ) -> GenerationStep:
        traces = done.traces.values()
        cycles = sum(trace.cycles for trace in traces)
        cpu = sum(estimate_cycles(compiled.graph, part) for part in compiled.partition.host_parts)
        seconds = (cycles + cpu) / self._hardware.timing.clock_hz
        return GenerationStep(
            phase,
            length,
            position,
            1,
            cycles,
            cpu,
            seconds,
            length / seconds,
            sum(trace.dram_read_bytes for trace in traces),
            sum(trace.dram_write_bytes for trace in traces),
            sum(array.nbytes for array in self._cache.values()),
            sum(done.outputs[pair.new].nbytes for pair in self._decoder.pairs),
        )

    def _compare(self, found: Arrays, wanted: Arrays) -> None:
        """Count the elements of an inference that differ from the oracle's."""
        for name, array in self._compiled.interface.real(found).items():
            self.elements += array.size
            self.mismatches += int(np.count_nonzero(array != wanted[name]))


def _best(outputs: Mapping[str, NDArray[Any]]) -> int:
    """Return the token with the largest logit at the last position, the first of equal ones."""
    return int(outputs[LOGITS][0, -1].argmax())


def _check_ports(compiled: CompiledNetwork, pairs: Sequence[CachePair], *, past: bool) -> None:
    """Raise InputError unless the cache of a decoder contains integers of one scale."""
    ports = {port.name: port for port in compiled.interface.ports}
    for pair in pairs:
        ends = [ports[name] for name in ((pair.past, pair.new) if past else (pair.new,))]
        for port in ends:
            if not port.integer or not port.quantization.same_as(ends[0].quantization):
                raise InputError(
                    f"the cache '{port.name}' is not quantised: {port.reason or 'another scale'}; "
                    "give a decoder whose attention reads keys and values as products"
                )
