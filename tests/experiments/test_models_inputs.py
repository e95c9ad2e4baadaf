"""Inputs: the photograph, its crops, and files, with the exact error line for every defect."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx.helper import tensor_dtype_to_np_dtype
from PIL import Image

from experiments.models import MODELS
from experiments.models.inputs import load_input, photograph, photograph_crops
from isa.errors import InputError

SHAPE = (1, 3, 4, 4)


def message(path: Path, shape: tuple[int, ...] = SHAPE, dtype: str = "float32") -> str:
    with pytest.raises(InputError) as error:
        load_input(path, shape, dtype)
    return str(error.value)


@pytest.mark.parametrize("size", [32, 224])
def test_photograph(size: int) -> None:
    image = photograph(size)
    assert (image.shape, image.dtype) == ((1, 3, size, size), np.float32)
    assert -2.2 < image.min() < -1.5
    assert 1.5 < image.max() < 2.7
    assert image.flags.c_contiguous


def test_crops_are_seeded_and_differ() -> None:
    first, same = (list(photograph_crops(3, seed=5, size=32)) for _ in range(2))
    assert all((a == b).all() for a, b in zip(first, same, strict=True))
    assert not (first[0] == first[1]).all()
    assert not (first[0] == next(photograph_crops(1, seed=6, size=32))).all()


LARGE = re.compile("light-(vgg19|zfnet512|alexnet)|bert-.*|gpt2-.*|c3d|r2plus1d|lstm|point-pillars")
"""Names of networks that take long to build; one of a kind is enough."""


@pytest.mark.parametrize(
    "name",
    [
        *(name for name in MODELS if not LARGE.fullmatch(name)),
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("bert-2-128", "gpt2-1")),
    ],
)
def test_feeds_fit_the_network(name: str) -> None:
    builtin = MODELS[name]
    graph = builtin.build(0).graph
    constants = {tensor.name for tensor in graph.initializer}
    kinds = {
        value.name: (
            tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim),
            tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
        )
        for value in graph.input
        if value.name not in constants
    }
    feeds = [builtin.sample_input(), *builtin.calibration(0)]
    for feed in feeds:
        assert {key: (array.shape, array.dtype) for key, array in feed.items()} == kinds
    for feed in feeds[1:]:
        assert any(not np.array_equal(array, feeds[0][key]) for key, array in feed.items())


def test_arrays_are_read(tmp_path: Path) -> None:
    array = np.arange(48, dtype=np.float32).reshape(SHAPE)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", array)
    for name in ("a.npy", "a.npz"):
        np.testing.assert_array_equal(load_input(tmp_path / name, SHAPE), array)


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 3), ("RGB", 1)])
def test_images_are_cut_and_resized(tmp_path: Path, mode: str, channels: int) -> None:
    Image.new(mode, (20, 10), "white").save(tmp_path / "a.png")
    image = load_input(tmp_path / "a.png", (1, channels, 4, 4))
    assert (image.shape, image.dtype) == ((1, channels, 4, 4), np.float32)
    # (1 - mean) / deviation of ImageNet's channels, or plain 1 for one channel.
    expected = (
        [(1 - 0.485) / 0.229, (1 - 0.456) / 0.224, (1 - 0.406) / 0.225] if channels == 3 else [1.0]
    )
    np.testing.assert_allclose(image[0, :, 0, 0], expected, rtol=1e-6)


def test_missing_file(tmp_path: Path) -> None:
    assert message(tmp_path / "a.npy") == f"input {tmp_path / 'a.npy'}: no such file"


def test_unknown_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1,2")
    expected = (
        f"input {path}: unknown kind of file '.csv'; give a .npy, a .npz or an image such as .png "
        "or .jpg"
    )
    assert message(path) == expected


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_damaged_arrays(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(b"\x93NUMPY nonsense")
    assert message(path).startswith(f"input {path}: not a readable {suffix} file of plain numbers")


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    assert message(path).startswith(f"input {path}: not a readable .npy file of plain numbers")


def test_several_arrays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, a=np.zeros(1), b=np.zeros(1))
    assert message(path) == f"input {path}: expected one array, found a, b"


def test_wrong_shape_and_type(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.zeros((3, 4, 4), np.float32))
    assert message(path) == f"input {path}: expected shape (1, 3, 4, 4), got (3, 4, 4)"
    np.save(path, np.zeros(SHAPE))
    assert message(path) == f"input {path}: expected element type float32, got float64"


def test_damaged_image(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"nonsense")
    assert message(path) == f"input {path}: not a readable image"


def test_image_for_a_network_that_takes_none(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("RGB", (4, 4)).save(path)
    expected = f"input {path}: an image cannot become float32 of shape (1, 10); give a .npy file"
    assert message(path, (1, 10)) == expected
