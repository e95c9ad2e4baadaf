"""Axes of a sweep: the machine keys that it can vary, and their values.

Lists and ranges of a specification expand to these values. Each value is checked alone, against the
declaration of its field in ``Arch`` or ``Timing``. Whether a combination of values is a valid
machine is checked only when the machine is built.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from dla_sim.presets import quantity
from dla_sim.timing import Timing
from isa.arch import Arch, PeArray
from isa.errors import InputError, suggest_name
from isa.plugins import variant

MAXIMUM_VALUES = 100_000
"""Most values that one range may expand to."""
_RANGE_KEYS = {"from", "to", "step", "times"}


def _checkers(model: type[BaseModel], prefix: str = "") -> dict[str, TypeAdapter[Any]]:
    found: dict[str, TypeAdapter[Any]] = {}
    for name, field in model.model_fields.items():
        constrained: Any = field.annotation
        for rule in field.metadata:
            constrained = Annotated[constrained, rule]
        found[prefix + name] = TypeAdapter(constrained)
    return found


_ARCH = {key: checker for key, checker in _checkers(Arch).items() if key != "pe"} | _checkers(
    PeArray, "pe."
)
ARCH_KEYS: tuple[str, ...] = tuple(key for key in _ARCH if key != "isa")
"""Keys of the table ``arch``. ``isa`` is excluded: it is a top-level key of a specification."""
TIMING_KEYS: tuple[str, ...] = tuple(Timing.model_fields)
"""Keys of the table ``timing``."""
_CHECKERS = _ARCH | _checkers(Timing)


def axis_values(
    key: str, written: Any, check: Callable[[str, Any], Any] | None = None
) -> tuple[Any, ...]:
    """Return the values of a sweep axis in order, without duplicates.

    Args:
        key: a key of ``Arch``, ``pe.ic`` / ``pe.oc`` / ``pe.ow``, or a key of ``Timing``.
        written: one value, a list, or a range ``{from, to, step}`` or ``{from, to, times}`` with
            both ends included.
        check: checks a value and returns it; by default the declaration of the key does.

    Raises:
        InputError: the list is empty, or a value or the range is invalid; the message names the
            key.
    """
    if isinstance(written, Mapping):
        values: Iterable[Any] = _range(key, written)
    else:
        values = written if isinstance(written, list) else [written]
    found = tuple(
        dict.fromkeys(
            (check or _check_value)(key, quantity(key, v) if isinstance(v, str) else v)
            for v in values
        )
    )
    if not found:
        raise InputError(
            f"{key}: the list is empty, so the grid is; give at least one value or leave {key} out"
        )
    return found


def _check_value(key: str, value: Any) -> Any:
    try:
        checked = _CHECKERS[key].validate_python(value, strict=True)
    except ValidationError as error:
        message = str(error.errors(include_url=False)[0]["msg"])
        reason = message.removeprefix("Input ").removeprefix("Value error, ")
        raise InputError(f"{key} is {value!r}: {reason}") from error
    return variant(checked).name if key == "isa" else checked


def _range(key: str, written: Mapping[str, Any]) -> Iterable[int]:
    unknown = sorted(set(written) - _RANGE_KEYS)
    if unknown or not {"from", "to"} <= set(written) or ("step" in written) == ("times" in written):
        raise InputError(
            f"{key}: write a range as {{ from = 8, to = 64, step = 8 }} or with times "
            "= 2 instead of step"
        )
    bounds = {name: _whole(key, name, value) for name, value in written.items()}
    first = bounds["from"]
    last = bounds["to"]
    if first > last:
        raise InputError(f"{key}: the range from {first} to {last} is empty; swap its ends")
    if "step" in bounds:
        return _step_values(
            key, first, last, bounds["step"], 1, lambda value: value + bounds["step"]
        )
    if first < 1:
        raise InputError(f"{key}: a range with times must begin at 1 or more, not {first}")
    return _step_values(key, first, last, bounds["times"], 2, lambda value: value * bounds["times"])


def _whole(key: str, name: str, written: Any) -> int:
    value = quantity(f"{key}.{name}", written) if isinstance(written, str) else written
    if type(value) is not int:
        raise InputError(f"{key}: {name} is {value!r}; it must be an integer")
    return value


def _step_values(
    key: str, first: int, last: int, step: int, least: int, following: Callable[[int], int]
) -> list[int]:
    if step < least:
        raise InputError(
            f"{key}: {'step' if least == 1 else 'times'} is {step}; it must be {least} or more"
        )
    values = [first]
    while following(values[-1]) <= last:
        values.append(following(values[-1]))
        if len(values) > MAXIMUM_VALUES:
            raise InputError(
                f"{key}: the range has more than {MAXIMUM_VALUES} values; take larger steps"
            )
    return values


def check_key(table: str, key: str, known: tuple[str, ...]) -> None:
    """Raise InputError if ``table`` has no axis ``key``.

    The message suggests the closest known key.
    """
    if key in known:
        return
    other = "timing" if table == "arch" else "arch"
    if key in (TIMING_KEYS if table == "arch" else ARCH_KEYS):
        raise InputError(f"{table}.{key}: unknown axis; {key} belongs to table {other}")
    raise InputError(
        f"{table}.{key}: unknown axis; {suggest_name(key, known)}choose one of {', '.join(known)}"
    )
