"""Fidelity: is the prepared model the model as given? Both run on ONNX Runtime when a model is imported.

The oracle of a run starts from the prepared model; this is what holds the prepared one to the user's file. With nothing
fused, both may differ by rounding: by :data:`TOLERANCE` of a tensor's range at most, and by ten times that share of a
channel's own, at every output and at every tensor that has kept its name. Where constants are computed anew
(``ROUNDING``), by little more than that very tensor, and that very channel, moves by itself when the model's inputs
change in their last bits: a hundred layers make more of a rounding than ten do. Where one differs more, a pass has a
bug, which :class:`PassError` names. The outputs of a model that came quantised are compared with integer operators,
too, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, TensorProto, numpy_helper

from byoc.checking.stretches import stretches
from byoc.checking.ties import only_ties
from byoc.frontend.onnx.rewriting.law import Pass, applied
from byoc.frontend.onnx.rewriting.prepare import ROUNDING, apply
from byoc.package.package import Fidelity
from byoc.quantisation.calibrate import default_feeds
from byoc.runtimes.protobuf import array_of, copy_model, is_float32
from byoc.runtimes.session import OnnxRuntimeSession, value_bytes
from isa.errors import InputError

TOLERANCE = 1e-5
"""Share of a tensor's range by which a float tensor may always differ."""
CHANNEL = 0.1
"""What a share of a channel's own range counts: where it is small, rounding of the numbers around it is more of it. A
BatchNormalization that is only brought to another opset moves a channel of DenseNet by 1.4e-5 of its range."""
LAST_BITS = 2.0**-22
"""A share of itself by which a float32 number changes in two to four of its last units."""
OWN_MOVES = 2
"""How many times what such inputs do to a tensor a pass may do; of the zoo's networks the most is 1.5, YOLOv8n."""
CHANNEL_MOVES = 4
"""The same of a channel, often a handful of numbers, or one; of the zoo's the most is 3.1, of GPT-2's 50,257 logits."""
DRAWS = 8
"""Such inputs at most. A channel of one number may hardly move in one or two: GPT-2's most is 44 beside two of them."""
AT_MOST = 1e-3
"""Share of a tensor's range from which on no rounding of the model's own excuses a difference."""

_BLOCK = 1 << 20
"""Elements that are compared at once, in float64."""
AT_A_TIME = 1 << 27
"""Bytes of tensors of one model that are compared at a time: for more, both models run again."""

MOST_DECIBELS = 200.0
"""What stands for no noise at all."""

Tensors = Mapping[str, NDArray[Any]]


class Difference(NamedTuple):
    """How far two tensors differ at most, as shares of the range of the first.

    Both are infinite for other shapes or types, and where a number is infinite, or none, and the other not the same.
    """

    tensor: float
    """Of the range of the tensor."""
    channels: NDArray[np.float64]
    """Of each channel, CHANNEL times the share of its own range."""

    @property
    def share(self) -> float:
        """The one figure: the larger of both."""
        return max(self.tensor, float(self.channels.max(initial=0.0)))

    def is_beyond(self, moves: Difference | None) -> bool:
        """Whether it is more than what moves by itself by ``moves`` may differ, each held to its like."""
        own = SAME if moves is None else moves
        channels = np.maximum(TOLERANCE, CHANNEL_MOVES * own.channels)
        too_far = self.tensor > max(TOLERANCE, OWN_MOVES * own.tensor) or bool((self.channels > channels).any())
        return too_far or self.share >= AT_MOST


SAME = Difference(0.0, np.zeros(1))
OTHER = Difference(float("inf"), np.full(1, np.inf))
Differences = Mapping[str, Difference]
"""Of tensors by name."""


class PassError(RuntimeError):
    """A bug of ours: a pass has changed what the model computes."""


def prepared_faithfully(
    given: ModelProto,
    prepared: ModelProto,
    steps: Sequence[Pass],
    feed: Callable[[ModelProto], Tensors],
    *,
    integers: bool = False,
) -> tuple[ModelProto, Fidelity]:
    """``prepared``, which ``steps`` made of ``given``, held to it on one inference on what ``feed`` makes for it.

    With ``integers``, of a model that came quantised, it is as good if the outputs are equal to the bit with integer
    operators, or if ties explain every difference (:mod:`byoc.checking.ties`): float sums in another order can end on
    the other side of a tie. A step that only moves rounding (``ROUNDING``) and moves it too far in this model
    is left out, which is said. Raises PassError naming any other step behind which a tensor differs, the tensor and
    the difference.
    """
    left_out: tuple[str, ...] = ()
    kept = list(steps)
    while True:
        numbers, names = feed(prepared), _survivors(given, prepared)
        found, elements = _compared(given, prepared, names, numbers)
        suspects = list(_beyond(found))
        if integers and suspects and not integer_difference(given, prepared, numbers):
            suspects = []
        if integers and suspects and _are_ties(given, prepared, suspects, numbers):
            suspects = []
        before = values_of(given, suspects, numbers) if suspects else {}
        moves = _own_moves(given, kept, before, found, numbers) if suspects else {}
        worst = _worst(found, moves) if suspects else None
        if worst is None:
            largest = max((each.share for each in found.values()), default=0.0)
            laws = applied(given, prepared)
            return prepared, Fidelity(len(found), elements, rounded(largest), left_out=left_out, laws=laws)
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
    """Return whether two models differ by rounding and ties at most, on one inference with nothing fused."""
    found, _ = _compared(given, prepared, _survivors(given, prepared), feed)
    return _are_ties(given, prepared, list(_beyond(found)), feed)


def _are_ties(given: ModelProto, prepared: ModelProto, names: Sequence[str], feed: Tensors) -> bool:
    """Return whether ties explain every difference of the tensors ``names`` on one inference."""
    try:
        made = values_of(prepared, names, feed)
    except InputError:
        return False
    ends = {old.name: new.name for old, new in zip(given.graph.output, prepared.graph.output, strict=True)}
    after = {name: made[ends.get(name, name)] for name in names}

    def differing(before: Tensors) -> set[str]:
        return set(_beyond({name: compare(array, after[name]) for name, array in before.items()}))

    return only_ties(given, after, feed, differing, values_of, TOLERANCE)


def _compared(
    given: ModelProto, prepared: ModelProto, names: Sequence[str], feed: Tensors
) -> tuple[dict[str, Difference], int]:
    """How far each of ``names``, and each output, differs, and their elements; so many at a time as fit the memory."""
    known = {value.name: value for value in prepared.graph.value_info}
    ends = {value.name for model in (given, prepared) for value in model.graph.output}
    parts: list[list[str]] = [[]]
    room = AT_A_TIME
    for name in (name for name in names if name not in ends):
        room -= value_bytes(known[name])
        if room < 0 and parts[-1]:
            parts.append([])
            room = AT_A_TIME - value_bytes(known[name])
        parts[-1].append(name)
    found: dict[str, Difference] = {}
    elements = 0
    runs = stretches(given, parts, feed), stretches(prepared, parts, feed)
    for before in runs[0]:
        try:
            found |= _compare(before, next(runs[1]), given, prepared)
        except InputError:  # it does not run; whoever asks where, finds which tensor is the first
            return dict.fromkeys([*names, *ends], OTHER), elements
        elements += sum(array.size for name, array in before.items() if name in found)
        del before  # while the next stretch runs
    return found, elements


def rounded(share: float) -> float:
    """A share to two digits."""
    return float(f"{share:.2g}")


def _worst(found: Differences, moves: Differences = MappingProxyType({})) -> tuple[str, float] | None:
    """The tensor that differs most of those that differ by more than they may, and by which share."""
    beyond = _beyond(found, moves)
    return max(((name, each.share) for name, each in beyond.items()), key=lambda item: item[1], default=None)


def _beyond(found: Differences, moves: Differences = MappingProxyType({})) -> dict[str, Difference]:
    """The tensors that differ by more than they may, of which some are known to move by themselves."""
    return {name: each for name, each in found.items() if each.is_beyond(moves.get(name))}


def _guilty(
    given: ModelProto, steps: Sequence[Pass], before: Tensors, names: Sequence[str], feed: Tensors, moves: Differences
) -> tuple[str, str, float] | None:
    """The first of ``steps`` behind which a tensor differs from ``before``, the worst tensor, and its difference."""
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
    """How far each tensor of ``before`` moves by itself; nothing where other steps than ROUNDING differ.

    It moves with the inputs, or where all of these are integers, with the constants: the most of DRAWS, or of as many
    as excuse all that was ``found``.
    """
    plain = apply([step for step in steps if step.__name__ not in ROUNDING], given)
    names = list(before)
    if _worst(_differences(given, plain, before, names, feed)):
        return {}
    moves: dict[str, Difference] = {}
    integers = all(array.dtype != np.float32 for array in feed.values())
    generator = np.random.default_rng(0)
    for signs in (None, *repeat(generator, DRAWS - 1)):
        model = _with_moved_constants(given, signs) if integers else given
        moved = {name: _moved(array, signs) for name, array in feed.items()}
        for name, each in _compare(before, values_of(model, names, moved), given, given).items():
            last = moves.get(name, SAME)
            moves[name] = Difference(max(last.tensor, each.tensor), np.maximum(last.channels, each.channels))
        if not _beyond(found, moves):
            break
    return moves


def _moved(array: NDArray[Any], generator: np.random.Generator | None) -> NDArray[Any]:
    """float32 numbers changed in their last bits, all away from zero, or each as ``generator`` draws."""
    if array.dtype != np.float32:
        return array
    signs = 1.0 if generator is None else generator.choice((-1.0, 1.0), array.shape)
    return np.asarray(array * (1 + LAST_BITS * signs), np.float32)


def _with_moved_constants(model: ModelProto, generator: np.random.Generator | None) -> ModelProto:
    """A copy with every float32 constant as :func:`_moved` has it."""
    result = copy_model(model)
    for tensor in result.graph.initializer:
        if is_float32(tensor):
            tensor.CopyFrom(numpy_helper.from_array(_moved(array_of(tensor), generator), tensor.name))
    return result


def integer_difference(given: ModelProto, prepared: ModelProto, feed: Tensors) -> float:
    """How far the outputs of a model that came quantised are from those of the prepared one, with integer operators.

    A share of the range of the worst output; 0: equal to the bit; infinite: the prepared one does not run. Which groups
    ONNX Runtime fuses can depend on the form that passes have changed, dead code included: then both are right, and
    differ in the last bit.
    """
    before = values_of(given, [], feed, optimised=True)
    found = _differences(given, prepared, before, [], feed, optimised=True)
    return rounded(max((each.share for each in found.values()), default=0.0))


def trial_feed(model: ModelProto, seed: int) -> Tensors:
    """One input of a model with static shapes: the first that a quantiser without samples draws."""
    return next(default_feeds(model, seed))


def outputs_of(model: ModelProto, feeds: Iterable[Tensors]) -> list[Tensors]:
    """The outputs of a float model on each of ``feeds``."""
    names = [value.name for value in model.graph.output]
    session = OnnxRuntimeSession(model, optimised=False)
    return [session.run(names, feed) for feed in _inputs_only(model, feeds)]


def _inputs_only(model: ModelProto, feeds: Iterable[Tensors]) -> list[Tensors]:
    return [{value.name: feed[value.name] for value in model.graph.input} for feed in feeds]


def resemblance(
    outputs: Sequence[Tensors], integer_model: ModelProto, feeds: Iterable[Tensors]
) -> tuple[dict[str, float], dict[str, float]]:
    """How well a quantised model resembles the float one, which makes ``outputs`` of ``feeds``.

    The signal-to-noise ratio of every float output, in decibels, over all feeds; and for outputs that tell classes, a
    row of numbers a sample, the share of rows whose largest number is at the same place (the first of equal ones).
    """
    names, given = list(outputs[0]), _inputs_only(integer_model, feeds)
    integer = OnnxRuntimeSession(integer_model, quick=True)
    signals, errors = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    equal: dict[str, list[NDArray[np.bool_]]] = {}
    levels: dict[str, float] = {}
    for wanted, feed in zip(outputs, given, strict=True):
        found = integer.run(names, feed)
        for name in (name for name in names if wanted[name].dtype == np.float32):
            signals[name] += float(np.square(wanted[name], dtype=np.float64).sum())
            errors[name] += _error(wanted[name], found[name])
            levels[name] = _decibels(signals[name], errors[name])
            if _tells_classes(wanted[name]):
                rows = (array.reshape(array.shape[:2]).argmax(1) for array in (wanted[name], found[name]))
                equal.setdefault(name, []).append(np.equal(*rows))
    return levels, {name: float(np.concatenate(rows).mean()) for name, rows in equal.items()}


def _tells_classes(array: NDArray[Any]) -> bool:
    """Whether an output is a row of numbers a sample, further dimensions of 1 apart."""
    return array.ndim >= 2 and array.shape[1] > 1 and 0 < array.size == array.shape[0] * array.shape[1]


def _error(signal: NDArray[Any], found: NDArray[Any]) -> float:
    """The power of what differs; all of the signal's where an output depends on the data and is of another shape."""
    differs = signal.astype(np.float64) - found if signal.shape == found.shape else signal.astype(np.float64)
    return float(np.square(differs).sum())


def _decibels(power: float, error: float) -> float:
    if not np.isfinite((power, error)).all():
        return -MOST_DECIBELS
    if not error:
        return MOST_DECIBELS
    ratio = max(power / error, 10 ** (-MOST_DECIBELS / 10))
    return round(min(10 * float(np.log10(ratio)), MOST_DECIBELS), 1)


def _survivors(given: ModelProto, prepared: ModelProto) -> list[str]:
    """Float32 results of the prepared model's nodes that nodes of the given one make under the same name."""
    known = {value.name: value for value in prepared.graph.value_info}
    made = {name for node in given.graph.node for name in node.output}
    results = (name for node in prepared.graph.node for name in node.output if name in made and name in known)
    return [name for name in results if known[name].type.tensor_type.elem_type == TensorProto.FLOAT]


def values_of(
    model: ModelProto, names: Collection[str], feed: Tensors, *, optimised: bool = False
) -> dict[str, NDArray[Any]]:
    """The outputs of a model, and of ``names`` those that its nodes make."""
    made = {name for node in model.graph.node for name in node.output}
    outputs = list(dict.fromkeys(value.name for value in model.graph.output))
    further = [name for name in names if name in made and name not in outputs]
    inputs = {value.name for value in model.graph.input}
    session = OnnxRuntimeSession(model, optimised=optimised, further=further)
    return session.run([*outputs, *further], {name: array for name, array in feed.items() if name in inputs})


def _differences(
    given: ModelProto,
    made: ModelProto,
    before: Tensors,
    names: Sequence[str],
    feed: Tensors,
    *,
    optimised: bool = False,
) -> dict[str, Difference]:
    """How far each tensor of ``made`` is from ``before``, those of ``given``: infinitely where it does not run."""
    try:
        after = values_of(made, names, feed, optimised=optimised)
    except InputError:
        return dict.fromkeys(before, OTHER)
    return _compare(before, after, given, made)


def _compare(before: Tensors, after: Tensors, given: ModelProto, made: ModelProto) -> dict[str, Difference]:
    """How far each tensor of both differs, by the first one's names: outputs go by place, others by name."""
    pairs = {
        old.name: new.name for old, new in zip(given.graph.output, made.graph.output, strict=True) if old.name in before
    }
    pairs |= {name: name for name in before if name in after and name not in pairs}
    return {name: compare(before[name], after[other]) for name, other in pairs.items()}


def difference(before: NDArray[Any], after: NDArray[Any]) -> float:
    """How far two tensors differ at most, in one figure (:attr:`Difference.share`)."""
    return compare(before, after).share


def compare(before: NDArray[Any], after: NDArray[Any]) -> Difference:
    """How far two tensors differ, the tensor and each of its channels, which lie along axis 1.

    Of integers and flags it is AT_MOST at least: they have no rounding. A channel differs by no more than TOLERANCE if
    the tensor's largest number differs in its last bits: its own may be rounding of such.
    """
    if before.shape != after.shape or before.dtype != after.dtype:
        return OTHER
    if np.array_equal(before, after, equal_nan=before.dtype.kind == "f"):
        return SAME
    if before.dtype.kind not in "biuf":
        return OTHER
    channels = before.shape[1] if before.ndim > 1 else 1
    one, other = (array.swapaxes(0, 1) if array.ndim > 1 else array for array in (before, after))
    one, other = one.reshape(channels, -1), other.reshape(channels, -1)
    least, most, largest = np.full(channels, np.inf), np.full(channels, -np.inf), np.zeros(channels)
    width = min(one.shape[1], _BLOCK)
    for rows in _blocks(channels, _BLOCK // width):
        for columns in _blocks(one.shape[1], width):
            first, second = one[rows, columns], other[rows, columns]
            with np.errstate(invalid="ignore"):
                gaps = np.abs(np.subtract(first, second, dtype=np.float64))
            if not np.isfinite(gaps).all():
                finite = np.isfinite(first) & np.isfinite(second)
                if not np.array_equal(first[~finite], second[~finite], equal_nan=True):
                    return OTHER
                first, gaps = np.where(finite, first, np.nan), np.where(finite, gaps, np.nan)
            least[rows] = np.fmin(least[rows], np.fmin.reduce(first, 1))
            most[rows] = np.fmax(most[rows], np.fmax.reduce(first, 1))
            largest[rows] = np.fmax(largest[rows], np.fmax.reduce(gaps, 1))
    spread, size = float(most.max() - least.min()), float(max(abs(most.max()), abs(least.min())))
    own = np.where(most > least, most - least, np.abs(most))
    floor = size * LAST_BITS / TOLERANCE  # the range of a tensor whose last bits are TOLERANCE of it
    ranges = np.maximum(own / CHANNEL, floor)
    shares = largest / np.where(ranges > 0, ranges, 1.0)
    tensor = float(largest.max()) / (max(spread or size, floor) or 1.0)
    return Difference(tensor if before.dtype.kind == "f" else max(tensor, AT_MOST), shares)


def _blocks(count: int, step: int) -> Iterator[slice]:
    return (slice(start, start + step) for start in range(0, count, step))
