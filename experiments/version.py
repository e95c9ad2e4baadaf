"""Version of the code that runs, which reports, results and manifests record.

An installed copy does not contain later edits of a checkout; :func:`other_checkout` finds such a
checkout.
"""

from functools import cache
from pathlib import Path

from isa.installation import NAME, version_of
from isa.sources import HOME, list_sources, sources_digest

_PACKAGES = ("isa", "byoc", "dla_sim", "experiments")
_MARKS = (
    "pyproject.toml",
    "isa/__init__.py",
    "byoc/__init__.py",
    "dla_sim/__init__.py",
    "experiments/dla/__init__.py",
)


@cache
def tool_version() -> str:
    """Return the version of the installed distribution; ``unknown`` if it is not installed."""
    return version_of(NAME) or "unknown"


@cache
def compiler_version() -> str:
    """Return the distribution's version with a digest of the code.

    The digest covers the code that programs and their cycles depend on.
    """
    return f"{tool_version()}+{sources_digest('byoc', 'dla_sim', 'isa')[:12]}"


def other_checkout(folder: Path) -> Path | None:
    """Return the checkout that contains ``folder`` if its code differs from the running one.

    The result is None if ``folder`` is in no checkout, or if the code is the same.
    """
    for place in (folder, *folder.parents):
        if all((place / mark).is_file() for mark in _MARKS):
            return None if place == HOME or _contents(place) == _contents(HOME) else place
    return None


def _contents(home: Path) -> dict[str, bytes]:
    """Return the contents of the files of code and data by installed name.

    experiments/dla is installed as dla.
    """
    files = list_sources(home, (*_PACKAGES, "dla"))
    return {
        _find_installed_name(path.relative_to(home).as_posix()): path.read_bytes() for path in files
    }


def _find_installed_name(name: str) -> str:
    return name.removeprefix("experiments/") if name.startswith("experiments/dla/") else name
