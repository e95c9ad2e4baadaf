"""What has been chosen beforehand, for the layers of one region: is it legal, and what is a plan as such choices?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc.choices import Choices, LayerChoice
from byoc.operators.layer import Layer
from byoc.operators.nest import allowed_channels
from byoc.tiling.space import may_cut_rows
from byoc.tiling.tiling import Slots, Tiling, counts, find_shortage, order_of
from isa.arch import Arch
from isa.errors import InputError


def pins_of(choices: Choices, layers: Sequence[Layer], arch: Arch) -> list[LayerChoice | None]:
    """The choice for each layer; raises InputError for one that no tiling of the layer can agree with."""
    found = choices.of([layer.name for layer in layers])
    for layer, choice in zip(layers, found, strict=True):
        if choice is not None:
            _check(choices, layer, choice, arch)
    return found


def chosen_residents(choices: Choices, candidates: Iterable[str]) -> tuple[str, ...] | None:
    """Those of ``candidates`` that have been chosen, in their order; None where the compiler is to choose."""
    wanted = choices.residents
    return None if wanted is None else tuple(name for name in candidates if name in wanted)


def choice_of(name: str, tiling: Tiling) -> LayerChoice:
    """The tiling of a layer as the choice that leaves nothing of it open."""
    order, slots = order_of(tiling), tiling.slots
    return LayerChoice(name, tiling.channels, tiling.rows, tiling.depth, order, (*slots,))


def tiling_of(choice: LayerChoice) -> Tiling:
    """The tiling that a choice which leaves nothing open is."""
    assert choice.channels is not None
    assert choice.rows is not None
    assert choice.depth is not None
    assert choice.slots is not None
    return Tiling(choice.channels, choice.rows, choice.order == "channels", Slots(*choice.slots), choice.depth)


def misfit(choices: Choices, layer: Layer, choice: LayerChoice, arch: Arch) -> InputError:
    """That no tiling agrees with a choice and fits."""
    geometry = layer.geometry
    nest = geometry.nest
    channels = choice.channels or allowed_channels(nest, 1)
    rows = choice.rows or (1 if may_cut_rows(geometry, channels) else nest.rows)
    smallest = Tiling(
        channels, rows, choice.order == "channels", Slots(*(choice.slots or (1, 1, 1))), choice.depth or 0
    )
    shortage = find_shortage(geometry, smallest, arch)
    why = f"does not fit in {arch.sram_bytes} bytes of SRAM beside what is resident" if shortage is None else shortage
    parts, bands = counts(geometry, smallest)
    remedy = "choose fewer residents" if shortage is None else "choose smaller tiles or fewer slots"
    return _refused(choices, layer, f"the tiling chosen ({parts} x {bands} tiles) {why}; {remedy}")


def _check(choices: Choices, layer: Layer, choice: LayerChoice, arch: Arch) -> None:
    geometry, nest = layer.geometry, layer.nest
    if choice.channels is not None:
        _check_channels(choices, layer, choice.channels)
    if choice.rows is not None:
        banded = may_cut_rows(geometry, choice.channels or allowed_channels(nest, 1))
        if choice.rows > nest.rows or (choice.rows < nest.rows and not banded):
            wanted = f"it is 1 to {nest.rows}" if banded else f"its rows cannot be cut, take {nest.rows}"
            raise _refused(choices, layer, f"rows is {choice.rows}; {wanted}")
    if choice.depth:
        if not geometry.splits_depth:
            why = "its input channels cannot be cut (ISA v4 cuts those of convolutions and products), take 0"
            raise _refused(choices, layer, f"depth is {choice.depth}; {why}")
        if choice.depth >= nest.input_channels:
            why = f"it is 1 to {nest.input_channels - 1}, or 0 for all input channels at once"
            raise _refused(choices, layer, f"depth is {choice.depth}; {why}")


def _check_channels(choices: Choices, layer: Layer, channels: int) -> None:
    nest = layer.nest
    fitting = allowed_channels(nest, channels)
    if channels > nest.channels:
        raise _refused(choices, layer, f"channels is {channels}; it is 1 to {nest.channels}")
    if fitting != channels:
        why = "a tile has all of its channels" if nest.whole else "a tile has whole groups, or an even part of one"
        raise _refused(choices, layer, f"channels is {channels}; {why}: take {fitting}")


def _refused(choices: Choices, layer: Layer, why: str) -> InputError:
    return InputError(f"{choices.source}: layer '{layer.name}': {why}")
