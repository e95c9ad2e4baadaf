"""Compiler and host runtime: an ONNX model becomes a Package, and a Package becomes Programs.

:func:`import_model` makes a portable package of a model. :func:`compile` makes the programs of one
machine from a package. The public names load on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc.compiled import CompiledNetwork
    from byoc.compiler import compile
    from byoc.importing import import_model
    from byoc.options import CompileOptions
    from byoc.package.package import Package, load_package, save_package
else:
    from isa.exports import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "CompileOptions": "byoc.options",
            "CompiledNetwork": "byoc.compiled",
            "Package": "byoc.package.package",
            "compile": "byoc.compiler",
            "import_model": "byoc.importing",
            "load_package": "byoc.package.package",
            "save_package": "byoc.package.package",
        },
    )

__all__ = [
    "CompileOptions",
    "CompiledNetwork",
    "Package",
    "compile",
    "import_model",
    "load_package",
    "save_package",
]
