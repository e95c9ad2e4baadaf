"""Base of all parts of a report, types of their fields, and measured figures."""

import reprlib
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

SHOWN = 200
"""Maximum length of the ``repr`` of a part, in characters."""
LARGEST_COUNT = (1 << 63) - 1
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Picojoules = Annotated[float, Field(ge=0, le=LARGEST_COUNT)]
Word = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9._+!-]{0,127}|[0-9]{1,9}/[0-9]{1,9})$")
]
"""Word that the project chooses itself, such as a version or a digest, or a fraction as 11/25."""
Text = Annotated[str, Field(max_length=1 << 16)]
"""Text from the user's files: names of models, nodes and tensors, commands and reasons."""


class Part(BaseModel):
    """Base of all parts of a report: immutable, and limited to the format's keys."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        defer_build=True,
        populate_by_name=True,
        serialize_by_alias=True,
        allow_inf_nan=False,
    )

    def __repr__(self) -> str:
        """Return the object's fields in one line, cut off if the line is too long."""
        shown = ", ".join(f"{name}={reprlib.repr(value)}" for name, value in self)
        return f"{type(self).__name__}({shown if len(shown) <= SHOWN else shown[:SHOWN] + '...'})"

    __str__ = __repr__


def expect(what: str, found: object, expected: object) -> None:
    """Raise ValueError if a value of a report is not the expected one."""
    if found != expected:
        raise ValueError(f"{what} is {found}, expected {expected}")
