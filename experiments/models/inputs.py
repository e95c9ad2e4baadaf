"""Network inputs: the photograph in the matplotlib package, crops of it, and files of the user."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from isa import memory
from isa.errors import InputError
from isa.reading import check_file, read_npy, read_npz

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".pgm", ".tif", ".tiff", ".webp"}
)

# Mean and standard deviation of ImageNet's pixels: red, green, blue, on the scale 0..1.
_MEAN = np.array([0.485, 0.456, 0.406], np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], np.float32)

_MAXIMUM_PIXELS = 1 << 26


@cache
def _photograph() -> Image:
    from PIL import Image

    # not imported: that takes 0.1 s, and only its image is needed
    package = find_spec("matplotlib")
    assert package is not None
    assert package.origin is not None
    with Image.open(
        Path(package.origin).parent / "mpl-data" / "sample_data" / "grace_hopper.jpg"
    ) as image:
        return image.convert("RGB")


def photograph(size: int = 224) -> NDArray[np.float32]:
    """Return the photograph, a portrait of Grace Hopper, as a network input.

    It is the central square, float32 (1, 3, size, size), normalised for ImageNet.
    """
    return _normalise_image(_photograph(), (1, 3, size, size))


def photograph_crops(count: int, seed: int, size: int = 224) -> Iterator[NDArray[np.float32]]:
    """Yield ``count`` seeded square crops of the photograph.

    The side of a crop is 60 % to 100 % of the photograph's width. Every second crop is mirrored.
    """
    from PIL import Image

    image = _photograph()
    random = np.random.default_rng(seed)
    for index in range(count):
        side = int(min(image.size) * random.uniform(0.6, 1.0))
        left, top = (int(random.integers(0, extent - side + 1)) for extent in image.size)
        crop = image.crop((left, top, left + side, top + side))
        mirrored = crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if index % 2 else crop
        yield _normalise_image(mirrored, (1, 3, size, size))


def luminance(size: int = 224) -> NDArray[np.float32]:
    """Return the portrait photograph in grey, float32 (1, 1, size, size) with values 0..1."""
    return _normalise_image(_photograph(), (1, 1, size, size))


def video(seed: int, frames: int = 16, size: int = 112) -> NDArray[np.float32]:
    """Return a video input: a crop of the photograph that moves one pixel per frame.

    The video is float32 (1, 3, frames, size, size).
    """
    crop = next(photograph_crops(1, seed, size + frames - 1))
    return np.stack([crop[:, :, i : i + size, i : i + size] for i in range(frames)], axis=2)


def _normalise_image(image: Image, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return the central square of an image, resized, as NCHW of ``shape``.

    Three channels are normalised for ImageNet; one channel has values from 0 to 1.
    """
    from PIL import Image as Images

    channels, height, width = shape[1:]
    side = min(image.size)
    left, top = ((extent - side) // 2 for extent in image.size)
    square = image.convert("RGB" if channels == 3 else "L").crop(
        (left, top, left + side, top + side)
    )
    resized = square.resize((width, height), Images.Resampling.BILINEAR)
    pixels = np.asarray(resized, np.float32).reshape(height, width, channels) / np.float32(255)
    if channels == 3:
        pixels = (pixels - _MEAN) / _DEVIATION
    return np.ascontiguousarray(pixels.transpose(2, 0, 1)[np.newaxis], np.float32)


def load_input(
    path: str | Path, shape: tuple[int, ...], dtype: str = "float32", other: str = ""
) -> NDArray[Any]:
    """Load a network input from a ``.npy`` file, a ``.npz`` file with one array, or an image.

    Arrays must have exactly this shape, and the type ``dtype`` or ``other``. An image is cut to its
    central square and resized. Three channels are normalised with ImageNet's mean and deviation;
    one channel is scaled to 0..1.

    Raises:
        InputError: no such file, unknown kind of file, unreadable contents, wrong shape or element
            type.
    """
    file = Path(path)
    check_file(file, named=f"input {file}")
    suffix = file.suffix.lower()
    if suffix in (".npy", ".npz"):
        return _check_array(
            file, _load_array(file), shape, tuple(dict.fromkeys((other or dtype, dtype)))
        )
    if suffix in IMAGE_SUFFIXES:
        return _load_image(file, shape, dtype)
    raise InputError(
        f"input {file}: unknown kind of file {suffix!r}; give a .npy, a .npz or an image such as "
        ".png or .jpg"
    )


def _load_array(file: Path) -> NDArray[Any]:
    if file.suffix.lower() == ".npy":
        return read_npy(file, f"input {file}")
    arrays = read_npz(file, f"input {file}")
    if len(arrays) != 1:
        raise InputError(f"input {file}: expected one array, found {', '.join(arrays) or 'none'}")
    return next(iter(arrays.values()))


def _check_array(
    file: Path, array: NDArray[Any], shape: tuple[int, ...], dtypes: tuple[str, ...]
) -> NDArray[Any]:
    if array.shape != tuple(shape):
        raise InputError(f"input {file}: expected shape {tuple(shape)}, got {array.shape}")
    if array.dtype == np.float16 and "float32" in dtypes:
        array = array.astype(np.float32)  # lossless
    if array.dtype not in map(np.dtype, dtypes):
        raise InputError(
            f"input {file}: expected element type {' or '.join(dtypes)}, got {array.dtype}"
        )
    return np.ascontiguousarray(array)


def _load_image(file: Path, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    from PIL import Image

    if len(shape) != 4 or shape[0] != 1 or shape[1] not in (1, 3) or dtype != "float32":
        raise InputError(
            f"input {file}: an image cannot become {dtype} of shape {tuple(shape)}; "
            "give a .npy file"
        )
    try:
        # the size is checked below
        with warnings.catch_warnings(action="ignore"), Image.open(file) as image:
            memory.require(8 * image.width * image.height, f"input {file}")
            if image.width * image.height > _MAXIMUM_PIXELS:
                raise InputError(
                    f"input {file}: {image.width}x{image.height} pixels are too many; "
                    "make it smaller"
                )
            return _normalise_image(image, shape)
    except InputError:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds for damaged files
        raise InputError(f"input {file}: not a readable image") from error
