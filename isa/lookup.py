"""Variants by name, wherever they are declared."""

from __future__ import annotations

from isa.variants import VARIANTS, Variant


def variant(name: str) -> Variant:
    """The variant called ``name``: of this repository, of an installed package, or composed as in ``v2+OP_NAME``.

    Raises InputError listing those that exist, and for a package whose declarations do not fit in.
    """
    if name in VARIANTS:
        return VARIANTS[name]
    from isa.plugins import installed  # looks at all installed packages, which takes longer than all the rest of isa

    return installed().variant(name)
