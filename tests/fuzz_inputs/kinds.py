"""Kinds of inputs: their mutations, the commands that read them, and their parsers."""

from __future__ import annotations

import hashlib
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from byoc.package.archive import MANIFEST
from isa.files import archive_bytes
from tests.fuzz_inputs import drawn_documents, drawn_files, drawn_onnx, drawn_tflite, materials
from tests.fuzz_inputs.mutation import (
    NUMBERS,
    mutate_bytes,
    mutate_json,
    mutate_model,
    mutate_text,
    mutate_words,
)

Mutator = Callable[[bytes, random.Random], bytes]


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    ``mutate`` changes it in a folder that holds all materials; one of ``commands`` reads it.

    ``door``: how the names of what reads it begin, as ``module`` or ``module.function``. What they
    refuse did not get past the first check.
    """

    name: str
    mutate: Callable[[Path, random.Random], None]
    commands: tuple[tuple[str, ...], ...]
    door: tuple[str, ...] = ()


def _file(name: str, *mutators: Mutator) -> Callable[[Path, random.Random], None]:
    def mutate(folder: Path, rng: random.Random) -> None:
        place = folder / name
        place.write_bytes(
            rng.choice((mutate_bytes, *mutators, *mutators, *mutators))(place.read_bytes(), rng)
        )

    return mutate


def _package(folder: Path, rng: random.Random) -> None:
    """Bytes of the file, or of a member with the sums made right again."""
    place = folder / "float.dla"
    if rng.random() < 0.1:
        place.write_bytes(mutate_bytes(place.read_bytes(), rng))
        return
    contents = materials.members(place)
    name = rng.choice(
        (
            MANIFEST,
            "graph.json",
            "graph.json",
            "graph.json",
            "model.onnx",
            "model.onnx",
            "weights.bin",
        )
    )
    mutators = {"model.onnx": mutate_model, "weights.bin": mutate_bytes}
    contents[name] = mutators.get(name, mutate_json)(contents[name], rng)
    place.write_bytes(archive_bytes(materials.resummed(contents)))


def _program(folder: Path, rng: random.Random) -> None:
    """The header or the rest of a program, with its sum made right again."""
    place = folder / "net.prog"
    content = place.read_bytes()[:-4]
    magic, length = struct.unpack_from("<8sI", content)
    header = content[12 : 12 + length]
    body = content[12 + length :]
    if rng.random() < 0.5:
        header = mutate_json(header, rng)
    else:
        words = bytearray(body)
        for _ in range(rng.choice((1, 1, 2, 4))):
            at = rng.randrange(json.loads(header)["words"]) * 8
            words[at : at + 4] = struct.pack("<q", rng.choice(NUMBERS))[:4]
        body = bytes(words) if rng.random() < 0.7 else mutate_bytes(body, rng)
    whole = struct.pack("<8sI", magic, len(header)) + header + body
    place.write_bytes(whole + struct.pack("<I", zlib.crc32(whole)))


def _corpus(folder: Path, rng: random.Random) -> None:
    """The index, a case with its digest made right again, or a pack."""
    index = folder / "corpus" / "corpus.json"
    document = json.loads(index.read_bytes())
    which = rng.randrange(3)
    if which == 0:
        index.write_bytes(rng.choice((mutate_json, mutate_bytes))(index.read_bytes(), rng))
    elif which == 1 or not document["packs"]:
        entry = rng.choice(list(document["cases"].values()))
        place = index.parent / entry["file"]
        content = rng.choice((mutate_text, mutate_text, mutate_bytes))(place.read_bytes(), rng)
        place.write_bytes(content)
        entry["sha256"] = hashlib.sha256(content).hexdigest()
        lines = "".join(
            f"{name} {item['sha256']}\n" for name, item in sorted(document["cases"].items())
        )
        document["digest"] = hashlib.sha256(lines.encode()).hexdigest()[:16]
        index.write_text(json.dumps(document), encoding="utf-8")
    else:
        place = index.parent / rng.choice(document["packs"])
        place.write_bytes(mutate_bytes(place.read_bytes(), rng))


def _npz(name: str) -> Callable[[Path, random.Random], None]:
    """Bytes of the archive, or of an array in it."""

    def mutate(folder: Path, rng: random.Random) -> None:
        place = folder / name
        if rng.random() < 0.3:
            place.write_bytes(mutate_bytes(place.read_bytes(), rng))
            return
        contents = materials.members(place)
        member = rng.choice(list(contents))
        data = contents[member]
        contents[member] = rng.choice((mutate_text, mutate_bytes))(data[:128], rng) + data[128:]
        with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
            for kept, content in contents.items():
                archive.writestr(kept, content)

    return mutate


def _snapshot(folder: Path, rng: random.Random) -> None:
    place = folder / "net.snapshot"
    if rng.random() < 0.2:
        place.write_bytes(mutate_bytes(place.read_bytes(), rng))
        return
    contents = materials.members(place)
    name = rng.choice(("snapshot.json", "snapshot.json", *contents))
    contents[name] = (mutate_json if name.endswith(".json") else mutate_bytes)(contents[name], rng)
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, data in contents.items():
            archive.writestr(member, data)


def _plugin(folder: Path, rng: random.Random) -> None:
    name = rng.choice(("METADATA", "entry_points.txt", "entry_points.txt"))
    _file(f"plugin/theirs-1.0.dist-info/{name}", mutate_text)(folder, rng)


def _nothing(folder: Path, rng: random.Random) -> None:
    return None


_MODELS = ("float.onnx", "tiny.onnx", "qoperator.onnx", "qdq.onnx", "random.onnx")
IMAGE = ("--image", "0=zeros.bin")
_ONNX = (
    "byoc.runtimes.protobuf.parse_model",
    "byoc.frontend.onnx.file.check_model",
    "byoc.frontend.onnx.file._check_text",
)
_TFLITE = ("byoc.frontend.tflite.file", "byoc.importing.tflite_package")
_PRESET = ("dla_sim.presets._parse", "isa.reading", "isa.files")
_SYSTEM = ("dla_sim.systems.spec.document", "isa.files")
_SPEC = ("experiments.sweep.spec.parse_spec", "experiments.sweep.spec.load_spec", "isa.files")
_LOG = ("byoc.tuning.log._parse_line", "byoc.tuning.log._whole", "byoc.pins", "isa.files")
_INPUT = ("experiments.models.inputs._load", "isa.files")
KINDS = (
    *(
        Kind(name, _file(name, mutate_model),
             (("run", name, "--json", "out.json"), ("partition", name)), _ONNX)
        for name in _MODELS
    ),
    Kind("drawn ONNX", drawn_onnx.onnx_model, (
        ("run", "drawn.onnx", "--json", "out.json"), ("partition", "drawn.onnx"),
        ("compile", "drawn.onnx", "-o", "out.dla"),
        ("run", "drawn.onnx", "--set", "numerics=fixed"),
    ), _ONNX),
    Kind("TensorFlow Lite", _file("net.tflite", mutate_words), (
        ("run", "net.tflite", "--json", "out.json"),
        ("run", "net.tflite", "--set", "numerics=fixed"),
    ), _TFLITE),
    Kind("drawn TFLite", drawn_tflite.tflite_model, (
        ("run", "drawn.tflite", "--json", "out.json"),
        ("run", "drawn.tflite", "--set", "numerics=fixed"),
        ("partition", "drawn.tflite"),
    ), _TFLITE),
    Kind("package", _package, (
        ("run", "float.dla", "--json", "out.json"), ("simulate", "float.dla", "--integer-io"),
    ), ("byoc.package.package._make_error", "byoc.package.archive", *_ONNX)),
    Kind(
        "program",
        _program,
        (("simulate", "net.prog", *IMAGE), ("simulate", "net.prog", "--sanitize", *IMAGE),
         ("disasm", "net.prog")),
        ("isa.program_file._parse", "isa.program_file._check_header"),
    ),
    Kind("assembly", _file("tiny.s", mutate_text), (("asm", "tiny.s", "-o", "out.prog"),),
         ("isa.assembler",)),
    Kind("drawn assembly", drawn_files.assembly, (("asm", "drawn.s", "-o", "out.prog"),),
         ("isa.assembler",)),
    Kind("preset", _file("preset.toml", mutate_text),
         (("emit", "tiny.dla", "--preset", "preset.toml"),), _PRESET),
    Kind("settings", _nothing, (("set",),), ("dla_sim.presets._parse", "isa.files")),
    Kind("pins", _file("pins.toml", mutate_text), (("emit", "tiny.dla", "--pins", "pins.toml"),),
         ("byoc.pins",)),
    Kind("drawn pins", drawn_documents.pins,
         (("emit", "tiny.dla", "--pins", "drawn.toml"),), ("byoc.pins",)),
    Kind("tuning log", _file("tuning.jsonl", mutate_text),
         (("emit", "tiny.dla", "--tuned", "tuning.jsonl"),), _LOG),
    Kind("specification", _file("spec.toml", mutate_text), (("spec",),), _SPEC),
    Kind("drawn sweep", drawn_documents.specification, (
        ("sweep", "drawn.toml", "--workers", "1", "-o", "out.sqlite", "--export", "out.csv"),
        ("grid",),
    ), _SPEC),
    Kind("system", _file("system.toml", mutate_text), (
        ("system", "system.toml", "--until", "20us"),
        ("system", "system.toml", "--until", "20us", "--policy", "jit"),
    ), _SYSTEM),
    Kind("drawn system", drawn_documents.system, (
        ("system", "drawn.toml", "--until", "20us"),
        ("system", "drawn.toml", "--until", "50us", "--json", "out.json", "--trace", "out.pftrace"),
        ("system", "drawn.toml", "--until", "10us", "--highest-rate"),
        ("system", "drawn.toml", "--until", "20us", "--check"),
        ("system", "drawn.toml", "--until", "20us", "--sweep", "run.policy=fcfs,edf,jit",
         "--csv", "out.csv"),
    ), _SYSTEM),
    Kind("split", drawn_documents.system, tuple(
        ("split", "tiny.dla", "drawn.toml", "--by", way, "--json", "out.json")
        for way in ("batch", "channels", "rows", "pipeline")
    ), _SYSTEM),
    Kind("drawn tuning log", drawn_documents.tuning_log, (
        ("emit", "tiny.dla", "--tuned", "drawn.jsonl"),
        ("tune", "tiny.dla", "--measurements", "3", "--no-model", "--log", "drawn.jsonl"),
        ("tune", "tiny.dla", "--measurements", "3", "--no-model", "--from", "drawn.jsonl",
         "--log", "new.jsonl"),
    ), _LOG),
    Kind("cache", drawn_files.cache, (
        ("cached", "run", "tiny.onnx", "--json", "out.json"), ("cached", "cache"),
        ("cached", "cache", "--clear"),
    )),
    Kind("RTL preset", drawn_documents.machine, (
        ("rtl", "ports", "--preset", "drawn.toml"), ("emit", "tiny.dla", "--preset", "drawn.toml"),
    ), _PRESET),
    Kind("Python call", _nothing, (("call",),), ("isa.typed",)),
    Kind("cost table", _file("cost.toml", mutate_text),
         (("report", "run.json", "--tables"), ("cost",)), ("experiments.cost.table",)),
    Kind("fault file", _file("faults.toml", mutate_text), (("faults",),), ("tests.faults",)),
    Kind("report", _file("run.json", mutate_json), (
        ("report", "run.json", "--tables"), ("report", "run.json", "-o", "page.html"),
        ("repro", "run.json"),
        ("golden", "diff", "run.json", "run.json"),
    ), ("experiments.report.store",)),
    Kind("results", _file("net.sqlite"), (("report", "net.sqlite", "--tables"),),
         ("experiments.sweep.store",)),
    Kind("corpus", _corpus, (("golden", "check", "corpus"), ("golden", "list", "corpus")),
         ("experiments.golden.store",)),
    Kind("snapshot", _snapshot, (("golden", "diff", "net.snapshot", "net.snapshot"),),
         ("experiments.compare.snapshot_file",)),
    Kind("log", _file("net.log", mutate_text),
         (("simulate", "tiny.prog", *IMAGE, "--against", "net.log"),),
         ("experiments.debug.commit_log",)),
    Kind("npy", _file("x.npy"), (("run", "tiny.dla", "--input", "x.npy", "--json", "out.json"),),
         _INPUT),
    Kind("npz", _npz("x.npz"), (("run", "tiny.dla", "--input", "x.npz", "--json", "out.json"),),
         _INPUT),
    Kind("calibration", _npz("samples.npz"),
         (("compile", "tiny.onnx", "--calibration", "samples.npz"),),
         ("experiments.running.network.read_samples",)),
    Kind("drawn arrays", drawn_files.arrays, (
        ("run", "tiny.dla", "--input", "drawn.npy", "--json", "out.json"),
        ("run", "tiny.dla", "--input", "drawn.npz"),
        ("compile", "tiny.onnx", "--calibration", "drawn-samples.npz", "-o", "out.dla"),
        ("run", "tiny.onnx", "--accuracy", "drawn-samples.npz"),
    ), (*_INPUT, "experiments.running.network.read_samples")),
    Kind("picture", _file("x.png"),
         (("run", "tiny.dla", "--input", "x.png", "--json", "out.json"),), _INPUT),
    Kind("entry points", _plugin, (("plugins",),), ("isa.plugins",)),
    Kind("command line", _nothing, (("words",),)),
)  # fmt: skip
