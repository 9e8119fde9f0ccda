"""The base class of everything that users write in YAML."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from k8sdds.system import units

MAX_NAME, MAX_LABEL, MAX_TITLE, MAX_REMARKS = 80, 40, 200, 10_000
"""Most characters of a name, of a label in tables and figures, of a title, and of remarks."""
MAX_RATE_MBIT = 400_000
"""Highest rate of a link, and of samples: that of the fastest common Ethernet links, and more than a core can copy."""


class Strict(BaseModel):
    """A model that rejects unknown keys, reads numbers with units, and whose values are immutable."""

    page: ClassVar[str] = ""
    """The topic of `k8sdds docs` that explains the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _in_its_unit(cls, value: Any, info: ValidationInfo) -> Any:
        return units.number(info.field_name or "", value)


def as_list(value: Any) -> Any:
    """Return a single value of YAML as a list with one item."""
    return value if isinstance(value, list | tuple) else [value]


def mistake(message: str, *keys: int | str) -> ValidationError:
    """Return an error for a validator to raise that concerns keys below the value that it validates."""
    kind = PydanticCustomError("mistake", "{message}", {"message": message})
    return ValidationError.from_exception_data("", [InitErrorDetails(type=kind, loc=keys, input=None)])
