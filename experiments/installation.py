"""Report on the installation: version, dependencies, extras and libraries.

The libraries are those that determine the speed.
"""

import ctypes
import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement

from experiments.version import tool_version
from isa.installation import NAME, version_of

PURPOSES = {
    "device": "C for microcontrollers: compilers and processor emulators",
    "docs": "building the documentation site",
    "explore": "dla explore",
    "fast": "compiled kernels, Device(compiled=True)",
    "pages": "HTML pages of reports",
    "rtl": "the machine as hardware: dla rtl, dla run --engine rtl",
    "sweep": "tables in Python, dla sweep --export and --scheduler",
    "test": "the tests",
    "tflite": "TensorFlow Lite models",
    "train": "training the digits network again",
    "tune": "the learned cost model of dla tune",
    "tvm": "networks in Apache TVM",
    "vela": "the comparison with Vela",
}
"""Purpose of each extra."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that limit the threads of NumPy's matrix products."""
EXTENSIONS = {
    "AVX512_ICL": "AVX-512 with VNNI", "X86_V4": "AVX-512", "AVX512_SKX": "AVX-512",
    "X86_V3": "AVX2", "AVX2": "AVX2",
    "ASIMDDP": "NEON with dot products", "ASIMD": "NEON", "NEON": "NEON", "X86_V2": "SSE4.2",
    "SSE42": "SSE4.2",
}  # fmt: skip
"""Vector instruction sets by NumPy's names, widest first."""


@dataclass(frozen=True)
class Dependency:
    """A Python package that is required, its version limits, and its installed version.

    ``found`` is empty if no version is installed. ``fits`` is True if the version satisfies the
    requirement.
    """

    wanted: str
    found: str
    fits: bool


@dataclass(frozen=True)
class Extra:
    """One optional extra of the installation, its purpose and its packages.

    ``packages`` does not repeat the packages of other extras that this one includes.
    """

    name: str
    purpose: str
    packages: tuple[Dependency, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """Requirements of the extra that are not satisfied."""
        return find_missing(self.packages)


@dataclass(frozen=True)
class Installation:
    """Report on the installation: facts, required packages and extras.

    ``facts`` are (name, text). ``needed`` are the packages required without extras.
    """

    facts: tuple[tuple[str, str], ...]
    needed: tuple[Dependency, ...]
    extras: tuple[Extra, ...]


def find_missing(packages: Iterable[Dependency]) -> tuple[str, ...]:
    """Return the requirements in ``packages`` that are not satisfied."""
    return tuple(one.wanted for one in packages if not one.fits)


def look() -> Installation:
    try:
        given = tuple(map(Requirement, requires(NAME) or ()))
    except PackageNotFoundError:  # runs from a source tree that is not installed
        given = ()
    own = [one for one in given if one.name != NAME]
    extras = {name: [one for one in own if _is_needed(one, name)] for name in PURPOSES}
    return Installation(
        facts=tuple(_facts()),
        needed=tuple(_dependency(one) for one in own if _is_needed(one, "")),
        extras=tuple(
            Extra(name, PURPOSES[name], tuple(map(_dependency, packages)))
            for name, packages in extras.items()
            if packages
        ),
    )


def _is_needed(wanted: Requirement, extra: str) -> bool:
    """Return whether an optional extra needs a requirement on this computer.

    With ``""``, whether no extra is needed for it.
    """
    if wanted.marker is None:
        return not extra
    return wanted.marker.evaluate({"extra": extra}) and (
        not extra or not wanted.marker.evaluate({"extra": ""})
    )


def _dependency(wanted: Requirement) -> Dependency:
    extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
    text = f"{wanted.name}{extras}{wanted.specifier}"
    found = version_of(wanted.name)
    fits = bool(found) and wanted.specifier.contains(found, prereleases=True)
    return Dependency(text, found, fits)


def _facts() -> Sequence[tuple[str, str]]:
    threads = ", ".join(f"{name}={os.environ[name]}" for name in THREADS if name in os.environ)
    return (
        ("dla", f"{tool_version()} in {Path(__file__).resolve().parents[1]}"),
        ("Python", f"{platform.python_version()} at {sys.executable}"),
        (
            "system",
            f"{platform.system()} {platform.release()}, {platform.machine()}, "
            f"{os.cpu_count()} processors",
        ),
        ("BLAS", blas()),
        ("threads", threads or "as the libraries choose"),
        ("integers", integers()),
        ("products", products()),
    )


def blas() -> str:
    """Return name, version and detected processor core of NumPy's BLAS library.

    OpenBLAS selects its kernels by the detected core.
    """
    import numpy as np

    build = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{build['name']} {build['version']}, core {_core() or 'unknown'}"


def integers() -> str:
    """Return the processor's vector instructions, and the exactness of ONNX Runtime's products.

    The products are uint8 × int8. The function measures the products, because the instruction set
    does not tell which kernels a version of ONNX Runtime uses.
    """
    import numpy as np

    from dla_sim.kernels.products import integer_products

    simd = np.show_config(mode="dicts").get("SIMD Extensions", {})
    present = {*simd.get("baseline", ()), *simd.get("found", ())}
    vectors = next(
        (text for name, text in EXTENSIONS.items() if name in present), platform.machine()
    )
    found = integer_products()
    if found is None:
        return (
            f"{vectors}; ONNX Runtime has no exact integer products here. Results are the same, "
            "products slower"
        )
    if found.kind == "int8":
        return f"{vectors}; uint8 x int8 products are exact here, and dla uses them"
    return (
        f"{vectors}; uint8 x int8 products saturate at 16 bits here (no VNNI), so dla multiplies "
        "uint8 x uint8. Its results are the same; other programs on ONNX Runtime may compute "
        "other values"
    )


def products() -> str:
    """Return text on the method of integer matrix products in use, and the version of numba.

    numba compiles some kernels.
    """
    from dla_sim.kernels.products import integer_products

    found = integer_products()
    how = (
        "float32 by BLAS alone"
        if found is None
        else f"MatMulInteger of uint8 by {found.kind} on ONNX Runtime"
    )
    numba = version_of("numba")
    return f"{how}; numba {numba}" if numba else f"{how}; no numba"


def _core() -> str | None:
    """Return the processor core that OpenBLAS detected, or None if it cannot be determined.

    The library is the OpenBLAS that this process has loaded.
    """
    try:
        mapped = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    for path in sorted(set(re.findall(r"/\S*blas\S*", mapped))):
        library = ctypes.CDLL(path)
        for symbol in (
            "scipy_openblas_get_corename64_",
            "scipy_openblas_get_corename",
            "openblas_get_corename",
        ):
            if hasattr(library, symbol):
                function = getattr(library, symbol)
                function.restype = ctypes.c_char_p
                return str(function().decode())
    return None
