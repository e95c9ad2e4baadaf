"""Version of the installed distribution, as ``dla.__version__``.

It has a module of its own because the metadata of packages loads slowly.
"""

from experiments.version import tool_version

__version__ = tool_version()
