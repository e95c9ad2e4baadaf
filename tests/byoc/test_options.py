"""The compiler's options: declared once, and everything that derives from the declaration."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest

import byoc
from byoc.compiler import CompileKeywords
from byoc.options import (
    DEFAULTS,
    NOTHING,
    OPTIONS,
    PROGRAM_OPTIONS,
    CompileOptions,
    Option,
)
from isa.arch import Arch
from isa.errors import InputError

VALUES = [(option, value) for option in OPTIONS for value in option.values]


def test_every_field_is_an_option() -> None:
    assert [*(option.name for option in OPTIONS), "chosen"] == [
        item.name for item in fields(CompileOptions)
    ]
    assert {option.name: option.default for option in OPTIONS} | {"chosen": NOTHING} == vars(
        DEFAULTS
    )
    assert [option.name for option in OPTIONS if option not in PROGRAM_OPTIONS] == ["strict"]
    assert all(option.help for option in OPTIONS)


@pytest.mark.parametrize(
    ("option", "value"), VALUES, ids=[f"{option.name}-{value}" for option, value in VALUES]
)
def test_values_as_words_and_texts(option: Option, value: Any) -> None:
    chosen = replace(DEFAULTS, **{option.name: value})
    text = {True: "yes", False: "no"}.get(value, value)
    assert option.parse(text) == value
    words = [f"--{option.name.replace('_', '-')}", *([] if option.switch else [value])]
    assert chosen.words == ([] if value == option.default else words)
    assert chosen.choices == {
        **DEFAULTS.choices,
        **({option.name: value} if option in PROGRAM_OPTIONS else {}),
    }


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_other_values_are_refused(option: Option) -> None:
    values = ", ".join(map(str, option.values))
    with pytest.raises(InputError, match=f"{option.name} is 'fast'; choose one of {values}"):
        CompileOptions(**{option.name: "fast"})
    with pytest.raises(
        InputError, match=f"{option.word} is 'fast'; it is {' or '.join(option.texts)}"
    ):
        option.parse("fast")


def test_compile_refuses_what_is_no_option() -> None:
    with pytest.raises(TypeError, match="fusion"):
        byoc.compile(None, Arch(), fusion=True)


def test_keywords_are_the_fields_of_the_options() -> None:
    names = [item.name for item in fields(CompileOptions)]
    assert [*get_type_hints(CompileKeywords)] == names
    assert get_type_hints(CompileKeywords) == get_type_hints(CompileOptions)
