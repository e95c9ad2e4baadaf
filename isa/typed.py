"""Run-time checks that values fit their type annotations.

The Python API applies them to its arguments.
"""

from __future__ import annotations

import ast
import inspect
import os
import reprlib
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from isa.errors import InputError

Given = ParamSpec("Given")
Found = TypeVar("Found")
_WORDS = {
    int: "an integer", float: "a number", bool: "True or False", str: "a text", Path: "a path",
    types.NoneType: "None",
    Mapping: "a table by name", dict: "a table by name", Sequence: "a list", Iterable: "a list",
    tuple: "a list",
    list: "a list", Callable: "a function",
}  # fmt: skip
_ARRAYS = ("Buffer", "_Buffer", "_SupportsArray", "_NestedSequence")
_NAMES = {
    **dict.fromkeys(_ARRAYS, "an array"), "ModelProto": "an ONNX model", "Package": "a package",
    "SimulatedDevice": "a device",
    **dict.fromkeys(("Exported", "Traced"), "an exported program"),
}  # fmt: skip
"""Names of types in messages."""


def check_types(hints: Mapping[str, Any], values: Mapping[str, Any]) -> None:
    """Raise InputError naming the first value that does not fit its type hint.

    Values without hint fit.
    """
    for name, value in values.items():
        if name in hints and not _is_instance_of(value, hints[name]):
            kind = type(value).__name__
            shown = "None" if value is None else f"{reprlib.repr(value)} ({kind})"
            raise InputError(f"{name} is {shown}; give {_words(hints[name])}")


def check_arguments(function: Callable[Given, Found]) -> Callable[Given, Found]:
    """Return a function with a run-time check of its argument types.

    The check raises InputError for arguments that do not fit the annotations.
    """
    takes = inspect.signature(function)
    hints: dict[str, Any] | None = None

    @wraps(function)
    def call_checked(*positional: Given.args, **named: Given.kwargs) -> Found:
        nonlocal hints
        hints = _hints(function) if hints is None else hints
        bound = takes.bind(*positional, **named)
        various = [
            name
            for name, part in takes.parameters.items()
            if part.kind is inspect.Parameter.VAR_KEYWORD
        ]
        check_types(
            hints, {name: value for name, value in bound.arguments.items() if name not in various}
        )
        return function(*positional, **named)

    return call_checked


def check_if_function(found: Any) -> Any:
    """Return a plain function with an argument check, and other objects unchanged.

    Functions with a ``__signature__`` of their own are unchanged too, because they check
    themselves.
    """
    own = isinstance(found, types.FunctionType) and "__signature__" not in vars(found)
    return check_arguments(found) if own else found


def _hints(function: Any) -> dict[str, Any]:
    """Return a function's type hints by parameter, without the return type.

    The package of the return type may be imported later.
    """
    given = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    return _resolve_annotations(given, function.__module__)


def field_types(record: Any) -> Mapping[str, Any]:
    """Return the types of a dataclass's fields by name, including inherited fields."""
    found: dict[str, Any] = {}
    for base in reversed(record.__mro__):
        found |= _resolve_annotations(inspect.get_annotations(base), base.__module__)
    return found


def _resolve_annotations(annotations: Mapping[str, Any], module: str) -> dict[str, Any]:
    names = vars(sys.modules[module]) | _import_for_checkers(module)
    return get_type_hints(types.SimpleNamespace(__annotations__=dict(annotations)), names)


@cache
def _import_for_checkers(module: str) -> dict[str, Any]:
    """Return the names that a module imports under TYPE_CHECKING, because their import is slow."""
    found: dict[str, Any] = {}
    with suppress(OSError, TypeError):  # a module without source has no such imports
        for block in ast.parse(inspect.getsource(sys.modules[module])).body:
            if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
                for line in block.body:
                    if isinstance(line, ast.ImportFrom) and line.module:
                        # the package of an extra is not installed, so no argument can have its
                        # types
                        with suppress(ImportError):
                            home = import_module(line.module)
                            found |= {
                                one.asname or one.name: getattr(home, one.name)
                                for one in line.names
                            }
    return found


def _kinds(kind: Any) -> tuple[Any, ...]:
    """Return the member types of a union type.

    Nested unions and NumPy's named aliases (Python 3.12) are resolved.
    """
    origin = get_origin(kind)
    inside = get_args(kind)
    alias = getattr(origin or kind, "__value__", None)
    if alias is not None:
        return _kinds(alias[inside] if inside else alias)
    if origin in (Union, types.UnionType):
        return tuple(dict.fromkeys(one for part in inside for one in _kinds(part)))
    return (kind,)


def _is_instance_of(value: Any, kind: Any) -> bool:
    kinds = _kinds(kind)
    if len(kinds) > 1:
        return any(_is_instance_of(value, one) for one in kinds)
    kind = kinds[0]
    origin = get_origin(kind)
    inside = get_args(kind)
    if origin is Literal:
        return any(value is one or (type(value) is type(one) and value == one) for one in inside)
    if isinstance(value, bool | np.bool_) and kind in (int, float):
        return False
    if kind in (int, float):
        return isinstance(value, int | np.integer) or (
            kind is float and isinstance(value, float | np.floating)
        )
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind is Path:
        return isinstance(value, os.PathLike)
    if kind is None:
        return value is None
    plain = origin or kind
    if plain is Callable or plain is Callable.__class__:
        return callable(value) and _has_parameters_for(value, inside)
    if _is_callable_protocol(plain):
        return callable(value) and _has_parameters_for(
            value, ([*inspect.signature(plain.__call__).parameters][1:],)
        )
    asked = isinstance(plain, type) and getattr(plain, "_is_runtime_protocol", True)
    if not asked or plain in (object, type, Any):
        return True  # the called function checks these types itself
    if issubclass(plain, Mapping):
        return isinstance(value, Mapping) and (
            not inside
            or all(
                _is_instance_of(key, inside[0]) and _is_instance_of(one, inside[1])
                for key, one in value.items()
            )
        )
    if plain in (tuple, list, Sequence, Iterable):
        return _is_list_of(value, inside)
    return isinstance(value, plain)


def _is_callable_protocol(kind: Any) -> bool:
    """Return True if a type is a Protocol of callables."""
    return bool(getattr(kind, "_is_protocol", False)) and "__call__" in vars(kind)


def _has_parameters_for(function: Any, inside: tuple[Any, ...]) -> bool:
    """Return True if a function accepts as many arguments as its type declares.

    Built-in functions without a signature are accepted; such classes are not.
    """
    if not inside or not isinstance(inside[0], list):
        return True
    try:
        inspect.signature(function).bind(*inside[0])
    except TypeError:
        return False
    except ValueError:  # a built-in without a signature
        return not isinstance(function, type)
    return True


def _is_list_of(value: Any, inside: tuple[Any, ...]) -> bool:
    """Return True if a value is a list whose elements fit their type.

    A text, a table or bytes is not a list.

    Iterators are accepted unread.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        return False
    if not isinstance(value, list | tuple | range) or not inside:
        return True
    return all(_is_instance_of(one, inside[0]) for one in value)


def _words(kind: Any) -> str:
    inside = _kinds(kind)
    if len(inside) > 1:
        # of the types that NumPy accepts as an array, numbers and bytes are not worth naming
        if "_SupportsArray" in map(_name, inside):
            inside = tuple(one for one in inside if one not in (bool, int, float, complex, bytes))
        return " or ".join(dict.fromkeys(map(_words, inside)))
    kind = inside[0]
    origin = get_origin(kind)
    inside = get_args(kind)
    if origin is Literal:
        return " or ".join(repr(one) for one in inside)
    plain = origin or kind
    said = (
        "a function"
        if _is_callable_protocol(plain)
        else _WORDS.get(plain) or _NAMES.get(_name(kind)) or _name(kind).lstrip("_")
    )
    if plain in (Sequence, Iterable, list, tuple) and inside:
        return f"{said} of {_plural(inside[0])}"
    return said


def _name(kind: Any) -> str:
    plain = get_origin(kind) or kind
    return str(getattr(plain, "__name__", plain))


def _plural(kind: Any) -> str:
    return {int: "integers", float: "numbers", str: "texts"}.get(kind, _words(kind))
