"""Specification of a sweep: a TOML file (docs/sweeps.md), read and checked before anything runs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from byoc.options import PROGRAM_OPTIONS
from dla_sim.presets import DEFAULT_PRESET, Preset, load_preset
from experiments.running.declared import CommandOption, list_declared
from experiments.running.given import Given
from experiments.sweep.axes import ARCH_KEYS, TIMING_KEYS, axis_values, check_key
from experiments.sweep.constraints import RESULTS, Constraint, parse_constraint
from isa.arch import PeArray
from isa.errors import InputError, suggest_name
from isa.reading import read_bytes, text_of, toml_of
from isa.several import Several

MAXIMUM_BYTES = 1 << 20
_REMEDY = "docs/sweeps.md shows how to write one"


_OF_SYSTEMS = {"accelerator", "task"}
"""Keys that every system has and no specification of a sweep has."""
_SEVERAL = Several()
"""Accepts one value or a list of values."""


class _WrittenSpec(BaseModel):
    """Keys of a sweep specification as written, without the compiler's options."""

    model_config = ConfigDict(extra="forbid", strict=True)

    networks: Annotated[list[str], _SEVERAL] = Field(min_length=1)
    presets: Annotated[list[str], _SEVERAL] = Field(default=[DEFAULT_PRESET], min_length=1)
    isa: Annotated[list[str] | None, _SEVERAL] = Field(default=None, min_length=1)
    constraints: Annotated[list[str], _SEVERAL] = []
    arch: dict[str, Any] = {}
    timing: dict[str, Any] = {}
    joint: bool = False
    objective: Literal["ms", "ips", "uJ", "mm2"] = "ms"
    limits: dict[str, Annotated[list[str], _SEVERAL]] = {}
    weights: dict[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = {}


_OPTIONS: dict[str, Any] = {
    option.axis: (
        Annotated[list[option.type], _SEVERAL],  # type: ignore[name-defined]
        Field(default=[option.default], min_length=1),
    )
    for option in PROGRAM_OPTIONS
}
_GIVEN: dict[str, CommandOption] = {
    name: one for name, one in list_declared(Given).items() if one.word and one.repeats
}
"""Keys of a specification for all networks, with the meaning of the ``dla run`` options."""
GIVEN_KEYS: dict[str, Any] = {
    name: (
        (one.table or (str if one.kind is Path else one.kind)) | None,
        Field(default=None, ge=one.least),
    )
    for name, one in _GIVEN.items()
}
WrittenSpecification = create_model(
    "WrittenSpecification", __base__=_WrittenSpec, **_OPTIONS, **GIVEN_KEYS
)
_OF_JOINT = ("objective", "limits", "weights")
"""Keys that only a joint sweep has."""
_KEYS = (
    *("networks", "presets", "isa", *_OPTIONS, *_GIVEN, "constraints", "arch", "timing", "joint"),
    *_OF_JOINT,
)


@dataclass(frozen=True, eq=False)
class JointGoal:
    """Objective, limits and weights of a joint sweep, which apply to every machine.

    ``limits`` and ``weights`` are by network; ``objective`` is a name of ``UNITS``.
    """

    objective: str
    limits: Mapping[str, tuple[Constraint, ...]]
    weights: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Spec:
    """Checked specification of a sweep.

    ``options``, ``arch`` and ``timing`` map axes to values, in grid order. The values of axis
    ``pe`` are whole arrays (``{"ic": .., "oc": .., "ow": ..}``); those of other axes are numbers or
    texts. ``given`` has keywords of :class:`Given`. ``text`` is the file's content, ``source`` its
    name in messages, and ``folder`` the base of relative paths. ``goal`` is None unless the sweep
    is joint.
    """

    networks: tuple[str, ...]
    presets: Mapping[str, Preset]
    options: Mapping[str, tuple[Any, ...]]
    given: Mapping[str, Any]
    constraints: tuple[Constraint, ...]
    arch: Mapping[str, tuple[Any, ...]]
    timing: Mapping[str, tuple[Any, ...]]
    text: str
    source: str
    folder: Path
    goal: JointGoal | None = None

    def network(self, name: str) -> Given:
        """Return the run inputs of a network.

        File names are relative to the specification's folder.

        Built-in names are unchanged. Options that a quantised model settles itself apply to ONNX
        files only.
        """
        path = place_file(name, self.folder, (".onnx", ".tflite", ".dla"))
        found = Given(path, **self.given)
        return found if path.endswith(".onnx") else found.drop_settled()


Specification = str | Path | Mapping[str, Any] | Spec
"""A TOML file, or a mapping with the same keys."""


def load_spec(path: Path) -> Spec:
    """Read and check the specification file of a sweep.

    Raise InputError in one line that starts with the file and names the key.
    """
    return parse_spec(read_text(path), path.parent, str(path))


def read_text(path: Path) -> str:
    """Return the text of a specification file; raise InputError if it cannot be read."""
    content = read_bytes(path, MAXIMUM_BYTES, "a specification", _REMEDY)
    return text_of(content, str(path), _REMEDY)


def parse_spec(text: str, folder: Path = Path(), source: str = "specification") -> Spec:
    """Return the specification of a TOML text; raise InputError as :func:`load_spec` does."""
    values = toml_of(text, source, _REMEDY)
    if values.keys() & _OF_SYSTEMS:
        raise InputError(
            f"{source}: it describes a system; 'dla system {shlex.quote(source)} --sweep "
            "KEY=VALUE,...' sweeps it"
        )
    try:
        return _check_written(WrittenSpecification.model_validate(values), text, source, folder)
    except ValidationError as error:
        raise InputError(f"{source}: {find_problem(error)}") from error
    except InputError as error:
        raise InputError(f"{source}: {error}") from error


def find_problem(error: ValidationError, keys: Sequence[str] = ()) -> str:
    """Return pydantic's first validation error of a specification as one line."""
    problem = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return f"{key}: unknown key; choose one of {', '.join(keys or _KEYS)}"
    if problem["type"] == "missing":
        return f"{key}: missing; name at least one network"
    if problem["type"] == "too_short":
        return (
            f"{key}: the list is empty, so the grid is; give at least one value or leave {key} out"
        )
    return f"{key} is {problem['input']!r}: {str(problem['msg']).removeprefix('Input ')}"


def _check_written(written: _WrittenSpec, text: str, source: str, folder: Path) -> Spec:
    arch = {} if written.isa is None else {"isa": axis_values("isa", written.isa)}
    # Machines that differ only in scratchpad size share tilings, so they must follow each other:
    # these keys come last.
    sizes = ("sram_bytes", "sram_banks")
    flat = _flat_arch(written.arch)
    for key in sorted(flat, key=lambda key: key in sizes):
        arch[key] = _arrays(flat[key]) if key == "pe" else axis_values(key, flat[key])
    timing = {}
    for key, values in written.timing.items():
        check_key("timing", key, TIMING_KEYS)
        timing[key] = axis_values(key, values)
    networks = tuple(dict.fromkeys(written.networks))
    known = RESULTS if written.joint else ()
    constraints = [parse_constraint(constraint, known) for constraint in written.constraints]
    return Spec(
        networks=networks,
        presets={
            name: load_preset(place_file(name, folder, (".toml",))) for name in written.presets
        },
        options={
            option.name: tuple(dict.fromkeys(getattr(written, option.axis)))
            for option in PROGRAM_OPTIONS
        },
        given=list_keywords(written, folder),
        constraints=tuple(one for one in constraints if not one.names & {*known}),
        arch=arch,
        timing=timing,
        text=text,
        source=source,
        folder=folder,
        goal=_goal(written, networks, constraints),
    )


def _goal(
    written: _WrittenSpec, networks: tuple[str, ...], constraints: list[Constraint]
) -> JointGoal | None:
    """Return the goal of a joint sweep.

    Constraints that name figures are limits of every network. Raise InputError for a key that does
    not fit a joint sweep, or an ordinary one.
    """
    if not written.joint:
        if alone := [key for key in _OF_JOINT if key in written.model_fields_set]:
            raise InputError(f"{alone[0]}: only a joint sweep has it; add joint = true")
        return None
    for key in ("limits", "weights"):
        for name in (name for name in getattr(written, key) if name not in networks):
            near = suggest_name(name, networks)
            raise InputError(
                f"{key}.{name}: no network of this sweep; {near}choose one of {', '.join(networks)}"
            )
    if named := [one.text for one in constraints if "network" in one.names]:
        raise InputError(
            f"constraints: '{named[0]}': a joint sweep runs every network on every machine; leave "
            "out network, or write limits.NETWORK"
        )
    common = [one for one in constraints if one.names & {*RESULTS}]
    own = {
        name: tuple(parse_constraint(text, RESULTS, f"limits.{name}") for text in texts)
        for name, texts in written.limits.items()
    }
    return JointGoal(
        objective=written.objective,
        limits={name: (*common, *own.get(name, ())) for name in networks},
        weights={name: written.weights.get(name, 1.0) for name in networks},
    )


def _flat_arch(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return table ``arch`` with ``pe.ic``, ``pe.oc`` and ``pe.ow`` as separate keys.

    A key ``pe`` has a list of whole arrays.
    """
    flat: dict[str, Any] = {}
    for key, value in written.items():
        if key == "pe" and isinstance(value, Mapping):
            flat |= {f"pe.{name}": values for name, values in value.items()}
        else:
            flat[key] = value
    for key in flat:
        check_key("arch", key, ("pe", *ARCH_KEYS))
    both = [key for key in flat if key.startswith("pe.")]
    if "pe" in flat and both:
        raise InputError(
            f"arch.pe and arch.{both[0]} are both given; choose whole arrays or the lengths of "
            "their sides"
        )
    return flat


def _arrays(written: Any) -> tuple[dict[str, int], ...]:
    """Return the given arrays of processing elements as tables of ``ic``, ``oc`` and ``ow``.

    A missing ``ow`` is 1.
    """
    found: list[dict[str, int]] = []
    for item in written if isinstance(written, list) else [written]:
        if not isinstance(item, Mapping) or not {"ic", "oc"} <= set(item) <= set(
            PeArray.model_fields
        ):
            raise InputError(
                f"arch.pe is {item!r}; write a list of arrays such as {{ ic = 8, oc = 8 }}"
            )
        found.append(
            {name: axis_values(f"pe.{name}", item.get(name, 1))[0] for name in PeArray.model_fields}
        )
    if not found:
        raise InputError(
            "arch.pe: the list is empty, so the grid is; give at least one value or "
            "leave arch.pe out"
        )
    return tuple(item for index, item in enumerate(found) if item not in found[:index])


def list_keywords(written: BaseModel, folder: Path) -> dict[str, Any]:
    """Return the keywords that apply to all networks.

    File names are relative to the specification's folder.
    """
    found = {name: getattr(written, name) for name in _GIVEN if getattr(written, name) is not None}
    return {
        name: folder / value if _GIVEN[name].kind is Path else value
        for name, value in found.items()
    }


def place_file(name: str, folder: Path, endings: tuple[str, ...]) -> str:
    return str(folder / name) if name.endswith(endings) or "/" in name else name
