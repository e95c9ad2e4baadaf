"""What has been chosen beforehand, for the layers of one region: is it legal, and what is a plan as such choices?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from byoc.choices import Choices, GroupChoice, LayerChoice
from byoc.operators.layer import Layer
from byoc.operators.nest import allowed_channels
from byoc.operators.tiling import Slots, Tiling, counts, find_shortage, order_of
from byoc.scheduling.groups import Fabric, Group, lawful, may_ride, members_of, ridden_buffers, stays
from byoc.tiling.space import may_cut_rows
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


def group_choice_of(names: Sequence[str], group: Group) -> GroupChoice:
    """A group of layers of these names as the choice that leaves nothing of it open."""
    named = tuple(names[group.first : group.last + 1])
    if group.rides:
        return GroupChoice(named, 0)
    return GroupChoice(named, group.rows, group.kept, group.channels, group.held, group.slots)


def chosen_groups(choices: Choices, layers: Sequence[Layer], fabric: Fabric) -> tuple[Group, ...]:
    """The groups that have been chosen of a region's layers; raises InputError for one that cannot be.

    A group that names layers which do not follow one another here is another region's.
    """
    wanted, found, at = list(choices.groups or ()), list[Group](), 0
    while at < len(layers):
        for choice in wanted:
            last = at + len(choice.layers) - 1
            if tuple(layer.name for layer in layers[at : last + 1]) == choice.layers:
                found.append(_group(choices, choice, layers, fabric, at))
                wanted.remove(choice)
                at = last
                break
        at += 1
    return tuple(found)


def _group(choices: Choices, choice: GroupChoice, layers: Sequence[Layer], fabric: Fabric, first: int) -> Group:
    last, count = first + len(choice.layers) - 1, len(choice.layers)
    named = f"{choices.source}: group '{choice.layers[0]}' to '{choice.layers[-1]}'"
    if not lawful(fabric, first, last):
        raise InputError(f"{named}: bands of rows cannot pass all of these layers; 'dla explain MODEL' shows what can")
    if not choice.rows:
        return _riding(choices, named, layers, fabric, first, last)
    members = members_of(fabric, first, last)
    rows = fabric.planes[members[-1].writes.buffer].rows
    if choice.rows > rows:
        raise InputError(f"{named}: rows is {choice.rows}; it is 1 to {rows}")
    channels = choice.channels or tuple(layer.nest.channels for layer in layers[first : last + 1])
    held = choice.held or (True,) * count
    for key, listed in (("channels", channels), ("held", held)):
        if len(listed) != count:
            raise InputError(f"{named}: {key} has {len(listed)} entries for {count} layers")
    for layer, size in zip(layers[first : last + 1], channels, strict=True):
        _check_channels(choices, layer, size)
    read = tuple(dict.fromkeys(piece.buffer for member in members for piece in member.reads))
    made = {member.writes.buffer for member in members}
    always = [name for name in read if name in made and stays(fabric.planes[name], last)]
    wanted = read if choice.kept is None else (name for name in choice.kept if name in read)
    kept = tuple(dict.fromkeys((*wanted, *always)))
    return Group(first, last, choice.rows, kept, channels, held, choice.slots or 2)


def _riding(choices: Choices, named: str, layers: Sequence[Layer], fabric: Fabric, first: int, last: int) -> Group:
    """The group of two layers of which the last rides."""
    if last != first + 1 or not may_ride(layers, fabric, last):
        raise InputError(
            f"{named}: rows is 0, tile by tile; that is for a convolution or pool and an element-wise layer that alone "
            "reads what it makes"
        )
    stuck = sorted(ridden_buffers(fabric, last) & set(choices.residents or ()))
    if stuck:
        raise InputError(
            f"{named}: rows is 0, tile by tile, so that '{stuck[0]}' is no resident; leave one of both out"
        )
    return Group(first, last, 0, (), (), ())


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
