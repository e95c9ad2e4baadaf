"""Compare the model before and after the import passes; both run on ONNX Runtime.

A run's oracle starts from the model after the passes, the prepared model. This module links that
model to the user's file.
Without fusion, the two may differ by rounding: at most :data:`TOLERANCE` of a tensor's range, and
ten times that share of a channel's own range. The comparison covers every output and every tensor
that kept its name.

Passes that recompute constants (``ROUNDING``) may change a tensor or channel by a small multiple of
its own sensitivity. That is its change when the last bits of the model's inputs change; deep
networks amplify rounding more. A larger difference is a bug in a pass, which :class:`PassError`
names. The outputs of a model that came quantised are also compared with integer operators, bit by
bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto

from byoc.checking.stretches import stretches
from byoc.checking.ties import only_ties
from byoc.frontend.onnx.rewriting.law import Pass, count_applied
from byoc.frontend.onnx.rewriting.prepare import ROUNDING, apply
from byoc.package.package import Fidelity
from byoc.quantisation.calibrate import default_feeds
from byoc.runtimes.protobuf import (
    array_of,
    copy_model,
    is_float32,
    make_tensor,
    share_constants,
)
from byoc.runtimes.session import OnnxRuntimeSession, value_bytes
from isa.errors import InputError

TOLERANCE = 1e-5
"""Share of a tensor's range by which a float tensor may always differ."""
CHANNEL = 0.1
"""Weight of a difference relative to a channel's own range.

In a channel with a small range, rounding of the larger numbers around it weighs more. Converting a
BatchNormalization to another opset alone changes a channel of DenseNet by 1.4e-5 of its range.
"""
LAST_BITS = 2.0**-22
"""Relative change of a float32 number that alters two to four of its last units."""
OWN_MOVES = 2
"""Largest accepted difference of a tensor, as a multiple of its own sensitivity.

The largest multiple in the model zoo is 1.5 (YOLOv8n).
"""
CHANNEL_MOVES = 4
"""Largest accepted difference of a channel, as a multiple of its own sensitivity.

A channel may be a single number. The largest multiple in the model zoo is 3.1 (the 50,257 logits of
GPT-2).
"""
DRAWS = 8
"""Maximum number of perturbed inputs.

A channel of one number may hardly change on one or two inputs. After only two, GPT-2's largest
change is 44 times its sensitivity.
"""
AT_MOST = 1e-3
"""Share of a tensor's range from which a difference is never accepted as rounding."""

_BLOCK = 1 << 20
"""Number of elements compared at once, in float64."""
AT_A_TIME = 1 << 27
"""Bytes of one model's tensors that are compared at a time; for more, both models run again."""
TENSORS_AT_A_TIME = 500
"""Most tensors that are compared at a time: long models run in several sessions, in linear time."""

Tensors = Mapping[str, NDArray[Any]]


class Difference(NamedTuple):
    """Largest difference between two tensors, relative to the range of the first.

    Both shares are infinite for different shapes or types, and if a number is infinite or NaN and
    its counterpart is not the same.
    """

    tensor: float
    """Share of the tensor's range."""
    channels: NDArray[np.float64]
    """For each channel, CHANNEL times the share of its own range."""

    @property
    def share(self) -> float:
        """Larger of the tensor's and the channels' relative differences."""
        return max(self.tensor, float(self.channels.max(initial=0.0)))

    def is_beyond(self, moves: Difference | None) -> bool:
        """Return True if the difference is too large for a tensor with sensitivity ``moves``."""
        own = SAME if moves is None else moves
        channels = np.maximum(TOLERANCE, CHANNEL_MOVES * own.channels)
        too_far = self.tensor > max(TOLERANCE, OWN_MOVES * own.tensor) or bool(
            (self.channels > channels).any()
        )
        return too_far or self.share >= AT_MOST


SAME = Difference(0.0, np.zeros(1))
OTHER = Difference(float("inf"), np.full(1, np.inf))
Differences = Mapping[str, Difference]
"""Differences by tensor name."""


class PassError(RuntimeError):
    """Bug of the importer: a pass changed the model's results or made a model that does not run."""


def compare_prepared(
    given: ModelProto,
    prepared: ModelProto,
    steps: Sequence[Pass],
    feed: Callable[[ModelProto], Tensors],
    *,
    integers: bool = False,
) -> tuple[ModelProto, Fidelity]:
    """Compare a model's results before and after the passes ``steps``, on one inference.

    The passes turn ``given`` into ``prepared``.

    ``feed`` makes the inputs. Returns the prepared model and its fidelity. With ``integers``, for a
    model that came quantised, the model is also accepted if its outputs are bit-equal with integer
    operators, or if ties explain every difference (:mod:`byoc.checking.ties`): float sums in
    another order can round a tie the other way.

    A pass that may only change rounding (``ROUNDING``) and changes too much is omitted and listed
    in the fidelity. Raises PassError that names any other pass that changes a tensor, the tensor,
    and the difference.
    """
    left_out: tuple[str, ...] = ()
    kept = list(steps)
    while True:
        numbers = feed(prepared)
        names = _survivors(given, prepared)
        found, elements = _compare_tensors(given, prepared, names, numbers)
        suspects = list(_find_excessive(found))
        if integers and suspects and not integer_difference(given, prepared, numbers):
            suspects = []
        if integers and suspects and _is_explained_by_ties(given, prepared, suspects, numbers):
            suspects = []
        before = values_of(given, suspects, numbers) if suspects else {}
        moves = _own_moves(given, kept, before, found, numbers) if suspects else {}
        worst = _worst(found, moves) if suspects else None
        if worst is None:
            largest = max((each.share for each in found.values()), default=0.0)
            laws = count_applied(given, prepared)
            return prepared, Fidelity(
                len(found), elements, round_share(largest), left_out=left_out, laws=laws
            )
        guilty = _guilty(given, kept, before, suspects, numbers, moves)
        name, tensor, difference = guilty or (kept[-1].__name__, *worst)
        if name not in ROUNDING:
            raise PassError(
                f"the pass {name} changes tensor '{tensor}' by {difference:.3g} of its range; "
                "please report it with the model"
            )
        left_out = (*left_out, name)
        kept = [step for step in kept if step.__name__ != name]
        prepared = apply(kept, given)


def differ_by_ties(given: ModelProto, prepared: ModelProto, feed: Tensors) -> bool:
    """Return True if two models differ only by rounding and ties.

    They run on one inference without fusion.
    """
    found, _ = _compare_tensors(given, prepared, _survivors(given, prepared), feed)
    return _is_explained_by_ties(given, prepared, list(_find_excessive(found)), feed)


def _is_explained_by_ties(
    given: ModelProto, prepared: ModelProto, names: Sequence[str], feed: Tensors
) -> bool:
    """Return True if ties explain every difference of the tensors ``names`` on one inference."""
    try:
        made = values_of(prepared, names, feed)
    except InputError:
        return False
    ends = {
        old.name: new.name
        for old, new in zip(given.graph.output, prepared.graph.output, strict=True)
    }
    after = {name: made[ends.get(name, name)] for name in names}

    def find_differing(before: Tensors) -> set[str]:
        return set(
            _find_excessive({name: compare(array, after[name]) for name, array in before.items()})
        )

    return only_ties(given, after, feed, find_differing, values_of, TOLERANCE)


def _compare_tensors(
    given: ModelProto, prepared: ModelProto, names: Sequence[str], feed: Tensors
) -> tuple[dict[str, Difference], int]:
    """Return the difference of each output and each of ``names``, and the number of elements.

    Tensors are compared in parts of at most AT_A_TIME bytes and TENSORS_AT_A_TIME tensors.
    """
    known = {value.name: value for value in prepared.graph.value_info}
    ends = {value.name for model in (given, prepared) for value in model.graph.output}
    parts: list[list[str]] = [[]]
    room = AT_A_TIME
    for name in (name for name in names if name not in ends):
        room -= value_bytes(known[name])
        if parts[-1] and (room < 0 or len(parts[-1]) == TENSORS_AT_A_TIME):
            parts.append([])
            room = AT_A_TIME - value_bytes(known[name])
        parts[-1].append(name)
    found: dict[str, Difference] = {}
    elements = 0
    runs = stretches(given, parts, feed), stretches(prepared, parts, feed)
    for before in runs[0]:
        try:
            found |= _compare(before, next(runs[1]), given, prepared)
        except InputError:  # the search for the pass at fault finds the first tensor
            return dict.fromkeys([*names, *ends], OTHER), elements
        elements += sum(array.size for name, array in before.items() if name in found)
        del before  # frees memory while the next stretch runs
    return found, elements


def round_share(share: float) -> float:
    """Round a relative difference to two digits."""
    return float(f"{share:.2g}")


def _worst(
    found: Differences, moves: Differences = MappingProxyType({})
) -> tuple[str, float] | None:
    """Return the tensor whose difference is unacceptable and largest, and that difference.

    Returns None if there is none.
    """
    beyond = _find_excessive(found, moves)
    return max(
        ((name, each.share) for name, each in beyond.items()),
        key=lambda item: item[1],
        default=None,
    )


def _find_excessive(
    found: Differences, moves: Differences = MappingProxyType({})
) -> dict[str, Difference]:
    """Return the tensor differences that exceed the limits.

    The limits depend on the own sensitivity of some tensors.
    """
    return {name: each for name, each in found.items() if each.is_beyond(moves.get(name))}


def _guilty(
    given: ModelProto,
    steps: Sequence[Pass],
    before: Tensors,
    names: Sequence[str],
    feed: Tensors,
    moves: Differences,
) -> tuple[str, str, float] | None:
    """Return the first pass of ``steps`` that changes a tensor beyond the limits.

    ``before`` are the tensors of the given model. The worst tensor and its difference are returned
    too.
    """
    current = given
    for step in steps:
        current = step(current)
        worst = _worst(_differences(given, current, before, names, feed), moves)
        if worst is not None:
            return step.__name__, *worst
    return None


def _own_moves(
    given: ModelProto, steps: Sequence[Pass], before: Tensors, found: Differences, feed: Tensors
) -> dict[str, Difference]:
    """Return the sensitivity of each tensor of ``before`` to rounding of the model's inputs.

    The result is empty if steps outside ROUNDING already differ. The model's float inputs are
    perturbed in their last bits; if all inputs are integers, the constants are. The result is the
    maximum over DRAWS perturbations, or over as many as make every ``found`` difference acceptable.
    """
    names = list(before)
    with share_constants():
        plain = apply([step for step in steps if step.__name__ not in ROUNDING], given)
        if _worst(_differences(given, plain, before, names, feed)):
            return {}
        del plain
    moves: dict[str, Difference] = {}
    integers = all(array.dtype != np.float32 for array in feed.values())
    generator = np.random.default_rng(0)
    for signs in (None, *repeat(generator, DRAWS - 1)):
        moved = {name: _change_last_bits(array, signs) for name, array in feed.items()}
        with share_constants():
            model = _change_constants(given, signs) if integers else given
            after = values_of(model, names, moved)
        for name, each in _compare(before, after, given, given).items():
            last = moves.get(name, SAME)
            moves[name] = Difference(
                max(last.tensor, each.tensor), np.maximum(last.channels, each.channels)
            )
        if not _find_excessive(found, moves):
            break
    return moves


def _change_last_bits(array: NDArray[Any], generator: np.random.Generator | None) -> NDArray[Any]:
    """Change the last bits of an array of float32 numbers, away from zero or at random."""
    if array.dtype != np.float32:
        return array
    signs = 1.0 if generator is None else generator.choice((-1.0, 1.0), array.shape)
    return np.asarray(array * (1 + LAST_BITS * signs), np.float32)


def _change_constants(model: ModelProto, generator: np.random.Generator | None) -> ModelProto:
    """Return a copy of a model whose float32 constants are changed in their last bits."""
    result = copy_model(model)
    for tensor in result.graph.initializer:
        if is_float32(tensor):
            tensor.CopyFrom(
                make_tensor(_change_last_bits(array_of(tensor), generator), tensor.name)
            )
    return result


def integer_difference(given: ModelProto, prepared: ModelProto, feed: Tensors) -> float:
    """Return how much the import passes change a quantised model's outputs.

    Both models run with integer operators. The result is a share of the worst output's range: 0 if
    bit-equal, infinite if the prepared model does not run. Passes, even dead-code removal, can
    change which groups ONNX Runtime fuses; both models are then right and differ in the last bit.
    """
    before = values_of(given, [], feed, optimised=True)
    found = _differences(given, prepared, before, [], feed, optimised=True)
    return round_share(max((each.share for each in found.values()), default=0.0))


def trial_feed(model: ModelProto, seed: int) -> Tensors:
    """Return the first random inputs that calibration draws; the model must have static shapes."""
    return next(default_feeds(model, seed))


def _survivors(given: ModelProto, prepared: ModelProto) -> list[str]:
    """Return the names of float32 results that both the given and the prepared model compute."""
    known = {value.name: value for value in prepared.graph.value_info}
    made = {name for node in given.graph.node for name in node.output}
    results = (
        name
        for node in prepared.graph.node
        for name in node.output
        if name in made and name in known
    )
    return [name for name in results if known[name].type.tensor_type.elem_type == TensorProto.FLOAT]


def values_of(
    model: ModelProto, names: Collection[str], feed: Tensors, *, optimised: bool = False
) -> dict[str, NDArray[Any]]:
    """Return the model's outputs, and the tensors in ``names`` that its nodes compute."""
    made = {name for node in model.graph.node for name in node.output}
    outputs = list(dict.fromkeys(value.name for value in model.graph.output))
    further = [name for name in names if name in made and name not in outputs]
    inputs = {value.name for value in model.graph.input}
    session = OnnxRuntimeSession(model, optimised=optimised, further=further)
    return session.run(
        [*outputs, *further], {name: array for name, array in feed.items() if name in inputs}
    )


def _differences(
    given: ModelProto,
    made: ModelProto,
    before: Tensors,
    names: Sequence[str],
    feed: Tensors,
    *,
    optimised: bool = False,
) -> dict[str, Difference]:
    """Compare tensors of the model ``made`` with the tensors ``before`` of the given model.

    Returns a difference for each tensor. The difference is infinite if ``made`` does not run.
    ``before`` are tensors of ``given``.
    """
    try:
        after = values_of(made, names, feed, optimised=optimised)
    except InputError:
        return dict.fromkeys(before, OTHER)
    return _compare(before, after, given, made)


def _compare(
    before: Tensors, after: Tensors, given: ModelProto, made: ModelProto
) -> dict[str, Difference]:
    """Compare tensors of two models: outputs by position, other tensors by name.

    Results have the first model's names.
    """
    pairs = {
        old.name: new.name
        for old, new in zip(given.graph.output, made.graph.output, strict=True)
        if old.name in before
    }
    pairs |= {name: name for name in before if name in after and name not in pairs}
    return {name: compare(before[name], after[other]) for name, other in pairs.items()}


def difference(before: NDArray[Any], after: NDArray[Any]) -> float:
    """Return the largest relative difference between two tensors (:attr:`Difference.share`)."""
    return compare(before, after).share


def compare(before: NDArray[Any], after: NDArray[Any]) -> Difference:
    """Return the difference of two tensors and of each of their channels, which are on axis 1.

    For integers and flags it is at least AT_MOST, because they have no rounding. A channel differs
    by at most TOLERANCE if the tensor's largest number changes only in its last bits, because the
    channel may be rounding of such numbers.
    """
    if before.shape != after.shape or before.dtype != after.dtype:
        return OTHER
    if np.array_equal(before, after, equal_nan=before.dtype.kind == "f"):
        return SAME
    if before.dtype.kind not in "biuf":
        return OTHER
    channels = before.shape[1] if before.ndim > 1 else 1
    one, other = (array.swapaxes(0, 1) if array.ndim > 1 else array for array in (before, after))
    one = one.reshape(channels, -1)
    other = other.reshape(channels, -1)
    least = np.full(channels, np.inf)
    most = np.full(channels, -np.inf)
    largest = np.zeros(channels)
    width = min(one.shape[1], _BLOCK)
    for rows in _blocks(channels, _BLOCK // width):
        for columns in _blocks(one.shape[1], width):
            first = one[rows, columns]
            second = other[rows, columns]
            with np.errstate(invalid="ignore"):
                gaps = np.abs(np.subtract(first, second, dtype=np.float64))
            if not np.isfinite(gaps).all():
                finite = np.isfinite(first) & np.isfinite(second)
                if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
                    return OTHER
                first = np.where(finite, first, np.nan)
                gaps = np.where(finite, gaps, np.nan)
            least[rows] = np.fmin(least[rows], np.fmin.reduce(first, 1))
            most[rows] = np.fmax(most[rows], np.fmax.reduce(first, 1))
            largest[rows] = np.fmax(largest[rows], np.fmax.reduce(gaps, 1))
    spread = float(most.max() - least.min())
    size = float(max(abs(most.max()), abs(least.min())))
    own = np.where(most > least, most - least, np.abs(most))
    floor = size * LAST_BITS / TOLERANCE  # range of a tensor whose last bits are TOLERANCE of it
    ranges = np.maximum(own / CHANNEL, floor)
    shares = largest / np.where(ranges > 0, ranges, 1.0)
    tensor = float(largest.max()) / (max(spread or size, floor) or 1.0)
    return Difference(tensor if before.dtype.kind == "f" else max(tensor, AT_MOST), shares)


def _blocks(count: int, step: int) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, count, step))
