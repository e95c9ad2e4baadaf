"""Packages of others that come with an extra, and the line that installs them, as the installation itself says it.

No index has this project, so that the line names those packages.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires

from isa.cache_folder import NAME


def install_line(packages: Iterable[str]) -> str:
    """What to type to install ``packages`` where this Python finds them."""
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])


def remedy(extra: str) -> str:
    """The line that installs what belongs to ``extra``."""
    try:
        given = requires(NAME) or ()
    except PackageNotFoundError:  # it runs without being installed: from the folder of its sources
        given = ()
    belongs = re.compile(rf"""extra == ["']{extra}["']""")
    wanted = [text.partition(";")[0].strip() for text in given if belongs.search(text)]
    return install_line(wanted or [f".[{extra}]"])
