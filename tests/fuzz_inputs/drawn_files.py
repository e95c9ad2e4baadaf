"""Arrays, assembly and package caches drawn from nothing or changed, as files in a folder."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np

from tests.fuzz_inputs.drawn_documents import NUMBERS


def arrays(folder: Path, rng: random.Random) -> None:
    """Inputs of the network of any type, shape, order of bytes and values, as NumPy writes them."""
    generator = np.random.default_rng(rng.randrange(1 << 30))
    usual = rng.random() < 0.6
    kind = (
        "<f4"
        if usual
        else rng.choice(
            (">f4", "<f8", "<f2", "|i1", "<i8", "|b1", "<c8", "<U3", "|S2", "<M8[s]", "|V4")
        )
    )
    shape = rng.choice(
        (
            (1, 3, 8, 8),
            (2, 3, 8, 8),
            (3, 8, 8),
            (1, 3, 8, 8),
            (0, 3, 8, 8),
            (1, 3, 8),
            (),
            (1, 8, 8, 3),
        )
    )
    values = (generator.standard_normal(shape) * rng.choice((1, 100, 1e-30, 1e30))).astype(
        np.float32
    )
    if values.size and rng.random() < 0.3:
        values.flat[rng.randrange(values.size)] = rng.choice((np.nan, np.inf, -np.inf, -0.0, 3e38))
    with np.errstate(all="ignore"):
        made = np.zeros(shape, kind) if kind[1] in "USMV" else values.astype(kind)
    made = np.asfortranarray(made) if rng.random() < 0.2 else made
    np.save(folder / "drawn.npy", made)
    names = (
        {"x": made} if rng.random() < 0.8 else {rng.choice(("y", "X", "image")): made, "x": made}
    )
    np.savez(folder / "drawn.npz", **names)
    samples = {
        name: np.stack([one] * rng.randrange(1, 4)) if rng.random() < 0.8 else one
        for name, one in names.items()
    }
    if rng.random() < 0.1:
        samples["labels"] = np.zeros(2, np.int64)
    np.savez(folder / "drawn-samples.npz", **samples)


_REGISTERS = tuple(range(0, 4096, 64))


def assembly(folder: Path, rng: random.Random) -> None:
    """The program with other numbers in its lines, lines of it twice, elsewhere or gone."""
    lines = (folder / "tiny.s").read_text(encoding="utf-8").splitlines()
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        match rng.randrange(5):
            case 0 | 1 | 2:
                words = lines[at].split(" ")
                numbers = [
                    (place, word)
                    for place, word in enumerate(lines[at].split(" "))
                    if word.strip(",").lstrip("-").isdigit()
                ]
                if numbers:
                    place, word = rng.choice(numbers)
                    near = (
                        int(word.strip(",")) + rng.choice((-1, 1)),
                        rng.choice(_REGISTERS),
                        rng.randrange(256),
                    )
                    words[place] = str(rng.choice((*near, *NUMBERS[:14]))) + (
                        "," if word.endswith(",") else ""
                    )
                    lines[at] = " ".join(words)
            case 3:
                lines.insert(at, rng.choice(lines))
            case _:
                del lines[at]
                lines = lines or [""]
    (folder / "drawn.s").write_text("\n".join(lines) + "\n", encoding="utf-8")


def cache(folder: Path, rng: random.Random) -> None:
    """Damage the files of a cache folder, or replace them by other things.

    The folder keeps a whole entry in some cases.
    """
    place = folder / "cache"
    for path in sorted(place.iterdir()):
        match rng.randrange(9):
            case 0:
                content = bytearray(path.read_bytes())
                for _ in range(rng.choice((1, 3, 50))):
                    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
                path.write_bytes(content)
            case 1:
                path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])
            case 2:
                path.unlink()
                os.mkfifo(path)
            case 3:
                path.unlink()
                path.mkdir()
            case 4:
                path.unlink()
                path.symlink_to(rng.choice((path.name, "/dev/zero", "../tiny.onnx", "absent")))
            case 5:
                path.chmod(rng.choice((0, 0o400, 0o777)))
            case _:
                pass
    for name in (
        "z.package",
        ".0123456789abcdef.part",
        "rtl",
        "secret",
        "notes",
        "f" * 64 + ".package",
    ):
        if rng.random() < 0.2 and not (place / name).exists() and not (place / name).is_symlink():
            rng.choice(
                (
                    lambda path: path.write_bytes(rng.randbytes(rng.randrange(200))),
                    os.mkfifo,
                    Path.mkdir,
                    lambda path: path.symlink_to("/dev/zero"),
                )
            )(place / name)
    if rng.random() < 0.1:
        place.chmod(rng.choice((0o777, 0o500, 0o700)))
