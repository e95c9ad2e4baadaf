"""Functions of ``dla`` whose keywords are the fields of a request record."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, ParamSpec, TypeVar

from byoc.options import CompileOptions
from experiments.running.declared import list_declared
from experiments.running.given import NetworkChoice
from experiments.running.in_memory import to_onnx
from experiments.running.wording import speak_python
from isa.errors import InputError, suggest_name
from isa.typed import Found, check_types, field_types

Keywords = ParamSpec("Keywords")
Request = TypeVar("Request")
_CHOICES = tuple(item.name for item in fields(CompileOptions))


def _check_least(made: Any) -> None:
    """Raise InputError if a number is below the minimum that its field declares."""
    for name, one in list_declared(made).items():
        value = getattr(made, name)
        if one.least is not None and value is not None and value < one.least:
            raise InputError(f"{name} is {value}; it is {one.least} or more")


def door(
    name: str,
    keywords: Callable[Keywords, object],
    request: type[Request],
    work: Callable[[Request], Found],
) -> Callable[Keywords, Found]:
    """Wrap ``work``, which takes a request record, as a function of the record's fields.

    The function is called ``name``; ``request`` is the type of its request. ``keywords`` gives the
    signature for type checkers: the request, or the request and :class:`CompileOptions`. The
    keywords of the latter replace fields of the request's ``options``. A model is converted by
    :func:`to_onnx`. The function raises TypeError for a keyword that is not a field.
    """
    known = {part.name: part for part in inspect.signature(request).parameters.values()}
    if "options" in known:
        single = inspect.signature(CompileOptions).parameters.values()
        known |= {part.name: part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for part in single}

    def take_options(*positional: Keywords.args, **given: Keywords.kwargs) -> Found:
        for word in given:
            if word not in known:
                names = ", ".join(known)
                raise TypeError(
                    f"unexpected keyword argument '{word}'; "
                    f"{suggest_name(word, known)}options are {names}"
                )
        with speak_python(request):
            return work(make_request(positional, given))

    def make_request(positional: Any, given: Mapping[str, Any]) -> Request:
        choices = {word: value for word, value in given.items() if word in _CHOICES}
        rest: dict[str, Any] = {
            word: value for word, value in given.items() if word not in _CHOICES
        }
        check_types(
            field_types(request), inspect.signature(request).bind(*positional, **rest).arguments
        )
        made: Any = request(*positional, **rest)
        _check_least(made)
        if choices:
            made = replace(made, options=made.options.replace_fields(choices))
        if isinstance(made, NetworkChoice):
            made = replace(made, model=to_onnx(made.model))
        return made  # type: ignore[no-any-return]

    signature = inspect.signature(work).replace(parameters=list(known.values()))
    vars(take_options)["__signature__"] = signature
    # documents would show the TypeVar
    take_options.__annotations__ = {"return": signature.return_annotation}
    take_options.__name__ = take_options.__qualname__ = name
    take_options.__module__ = work.__module__
    take_options.__doc__ = work.__doc__
    return take_options
