"""Schedules as data: what is chosen of a network's schedules beforehand, by hand or by a search.

Whatever a record leaves open the compiler chooses as ever; a record that leaves nothing open is the whole schedule, and
the compiler streams it as it is. Bits never depend on it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from isa.errors import InputError

Order = Literal["rows", "channels"]
ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True)
class LayerChoice:
    """What is chosen of the tiling of one layer; None is left to the compiler.

    A tile makes ``channels`` by ``rows`` of the output from ``depth`` input channels (0: from all at once). The outer
    loop runs over ``order``; ``slots`` are the buffers of inputs, constants and outputs: 1 single, 2 double-buffered.
    """

    layer: str
    channels: int | None = None
    rows: int | None = None
    depth: int | None = None
    order: Order | None = None
    slots: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class GroupChoice:
    """Layers, by name in order, that are computed together in bands of ``rows`` rows of the last one's result.

    ``rows`` 0: two layers, the second element-wise and computed on every tile of the first, whose tiling is a
    :class:`LayerChoice` as ever; the rest is left out then. ``kept``: tensors of which rows stay from band to band;
    None: all. ``channels``: output channels a tile of each layer; None: all. ``held``: whether each layer's constants
    are loaded once, not in every band; None: all are. ``slots``: buffers of operands whose rows are not kept, and of
    results; None: 2.
    """

    layers: tuple[str, ...]
    rows: int
    kept: tuple[str, ...] | None = None
    channels: tuple[int, ...] | None = None
    held: tuple[bool, ...] | None = None
    slots: int | None = None

    @property
    def turns(self) -> str:
        """How the layers take turns, in words."""
        return f"in bands of {self.rows} rows" if self.rows else "tile by tile"


@dataclass(frozen=True)
class Choices:
    """What is chosen of a network. Falsy where that is nothing.

    Of several choices for layers of one name the first is for the first of them, and so on, the last for all that
    follow. ``residents``: exactly the tensors that stay in the scratchpad; None: the compiler chooses. ``groups``:
    exactly the layers that are computed together; None: the compiler chooses, of layers about which nothing else is
    chosen, and only if residents are not chosen either. ``package`` and ``machine`` are the digests that the choices
    were made for, empty for any. ``words`` choose them on a command line.
    """

    layers: tuple[LayerChoice, ...] = ()
    residents: tuple[str, ...] | None = None
    groups: tuple[GroupChoice, ...] | None = None
    package: str = ""
    machine: str = ""
    words: tuple[str, ...] = field(default=(), compare=False)

    def __bool__(self) -> bool:
        return bool(self.layers) or self.residents is not None or self.groups is not None

    @property
    def source(self) -> str:
        """What messages call them."""
        return " ".join(self.words) or "the choices"

    @property
    def digest(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of what is chosen: equal for equal choices."""
        text = json.dumps(as_json(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def of(self, names: Sequence[str]) -> list[LayerChoice | None]:
        """The choice for each of some layers, by their names in order."""
        by_name: dict[str, list[LayerChoice]] = {}
        for choice in self.layers:
            by_name.setdefault(choice.layer, []).append(choice)
        seen: Counter[str] = Counter()
        found: list[LayerChoice | None] = []
        for name in names:
            own = by_name.get(name)
            found.append(own[min(seen[name], len(own) - 1)] if own else None)
            seen[name] += 1
        return found

    def apply_to(self, names: Sequence[str]) -> bool:
        """Whether they can be about layers of these names: where they leave nothing open, about as many of each."""
        keys = (value for choice in self.layers for value in vars(choice).values())
        wanted = Counter(names)
        chosen = Counter(choice.layer for choice in self.layers if choice.layer in wanted)
        if self.residents is None or self.groups is None or None in keys or chosen.keys() < wanted.keys():
            return True
        return wanted == chosen

    def check_made_for(self, package: str, machine: str) -> None:
        """Raises InputError where they were made for another package or machine."""
        for what, wanted, found in (("network", self.package, package), ("machine", self.machine, machine)):
            if wanted and wanted != found:
                raise InputError(
                    f"{self.source}: made for another {what} (digest {wanted[:16]}, this one has {found[:16]}); "
                    "give the same model, seed, preset and settings, or tune this one with --from"
                )

    def check_made(self, made: Sequence[Choices]) -> None:
        """Raises InputError for a choice that is not in ``made``, the whole schedules of all regions.

        That is one about a layer or tensor that is none, or a group of layers that do not follow one another.
        """
        named = [choice.layer for choice in self.layers]
        named += [name for group in self.groups or () for name in group.layers]
        layers = [choice.layer for one in made for choice in one.layers]
        _check_known(self.source, "layer of the accelerator", named, layers)
        tensors = [name for one in made for name in one.residents or ()]
        _check_known(self.source, "tensor that can stay in the scratchpad", self.residents or (), tensors)
        found = {group.layers for one in made for group in one.groups or ()}
        for group in self.groups or ():
            if group.layers not in found:
                raise InputError(
                    f"{self.source}: group '{group.layers[0]}' to '{group.layers[-1]}': these layers do not follow one "
                    "another, or are in a group before; 'dla explain MODEL' lists all in order"
                )


NOTHING = Choices()


def _check_known(source: str, what: str, names: Iterable[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean '{close[0]}'?" if close else "'dla explain MODEL' lists them"
            raise InputError(f"{source}: '{name}' is no {what}; {meant}")


def as_json(choices: Choices) -> dict[str, Any]:
    """What is chosen, as plain values; :func:`byoc.pins.of_json` reads them."""
    found: dict[str, Any] = {"layers": [_said(one) for one in choices.layers]}
    if choices.residents is not None:
        found["residents"] = list(choices.residents)
    if choices.groups is not None:
        found["groups"] = [_said(one) for one in choices.groups]
    return found


def _said(choice: LayerChoice | GroupChoice) -> dict[str, Any]:
    return {name: value for name, value in asdict(choice).items() if value is not None}
