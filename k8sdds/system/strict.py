"""The base class of everything that users write in YAML."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from k8sdds.system import units

MAX_NAME, MAX_LABEL, MAX_TITLE = 80, 40, 200
"""Most characters of a name, of a label in tables and figures, and of a title."""
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=MAX_NAME)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+()-]*$", max_length=MAX_LABEL)]
Title = Annotated[str, Field(max_length=MAX_TITLE)]
Remarks = Annotated[str, Field(max_length=10_000)]
MAX_RATE_MBIT = 400_000
"""Highest rate of a link, and of samples: that of the fastest common Ethernet links, and more than a core can copy."""

_EXPECTED = {
    "missing": "this key is missing",
    "greater_than_equal": "expected at least {ge}",
    "greater_than": "expected more than {gt}",
    "less_than_equal": "expected at most {le}",
    "less_than": "expected less than {lt}",
    "too_short": "expected a list with {min_length} or more values",
    "too_long": "expected a list with at most {max_length} values",
    "string_too_short": "expected at least {min_length} characters",
    "string_too_long": "expected at most {max_length} characters",
    "string_pattern_mismatch": "expected text that matches {pattern}",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "expected a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "expected a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "expected true or false"),
    "string_type": "expected text",
    **dict.fromkeys(("list_type", "tuple_type"), "expected a list"),
    **dict.fromkeys(
        ("dict_type", "mapping_type", "model_type", "dataclass_type"), "expected keys with values"
    ),
}
"""Types of pydantic's errors whose messages describe Python, and what they mean in YAML and JSON."""


class Strict(BaseModel):
    """A model that rejects unknown keys, reads numbers with units, and whose values are immutable."""

    page: ClassVar[str] = ""
    """The topic of `k8sdds docs` that explains the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _in_its_unit(cls, value: Any, info: ValidationInfo) -> Any:
        return units.number(info.field_name or "", value)


class Placed(Strict):
    """An item of a list in a file, which messages locate."""

    _where: str = PrivateAttr("")

    @property
    def where(self) -> str:
        """`FILE:LINE: ` of the item; empty if it is not from a file."""
        return self._where

    def at(self, where: str) -> Self:
        """Return a copy that is known to be from `FILE:LINE: `."""
        copy = self.model_copy()
        copy._where = where
        return copy


def explain(error: ErrorDetails) -> str:
    """Return the message for one of the errors of a ValidationError."""
    if text := _EXPECTED.get(error["type"]):
        context = error.get("ctx", {})
        whole = {
            key: int(value)
            for key, value in context.items()
            if isinstance(value, float) and value.is_integer()
        }
        return text.format_map(context | whole)
    return re.sub("^Input should be ", "expected ", error["msg"].removeprefix("Value error, "))


def short_for(key: str) -> Any:
    """Return a validator of a model for which text alone is the value of this key."""
    return model_validator(mode="before")(lambda value: {key: value} if isinstance(value, str) else value)


def as_list(value: Any) -> Any:
    """Return a single value of YAML as a list with one item."""
    return value if isinstance(value, list | tuple) else [value]


def mistake(message: str, *keys: int | str) -> ValidationError:
    """Return an error for a validator to raise that concerns keys below the value that it validates."""
    kind = PydanticCustomError("mistake", "{message}", {"message": message})
    return ValidationError.from_exception_data("", [InitErrorDetails(type=kind, loc=keys, input=None)])
