"""The compiler and the host runtime: ONNX model to Package to Program.

The public names load when they are first used: :func:`import_model` (a model becomes a package) and :func:`compile`
(a package becomes the programs of one machine) are the way through it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from byoc.compiler import CompiledNetwork, compile
    from byoc.importing import import_model
    from byoc.options import CompileOptions
    from byoc.package.package import Package, load_package, save_package
else:
    from isa.exports import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "CompileOptions": "byoc.options",
            "CompiledNetwork": "byoc.compiler",
            "Package": "byoc.package.package",
            "compile": "byoc.compiler",
            "import_model": "byoc.importing",
            "load_package": "byoc.package.package",
            "save_package": "byoc.package.package",
        },
    )

__all__ = ["CompileOptions", "CompiledNetwork", "Package", "compile", "import_model", "load_package", "save_package"]
