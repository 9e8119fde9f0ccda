"""Define the parts of JSON documents that others wrote, so that code that uses their values does not check them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from k8sdds.system import reading

LIMIT = 2**63
"""Exclusive limit of all numbers; table columns cannot store larger integers."""

Integer = Annotated[int, Field(ge=0, lt=LIMIT, strict=True)]
Finite = Annotated[float, Field(ge=0, lt=LIMIT, allow_inf_nan=False, strict=True)]
Count = Integer | None
Number = Finite | None
Text = Annotated[str, Field(max_length=4096)] | None


class Shape(BaseModel):
    """A part of a document. Keys that it does not declare are allowed."""

    model_config = ConfigDict(strict=True, extra="ignore")

    @classmethod
    def of(cls, document: Any) -> Self | None:
        """Return a document of this shape; None if it has another one."""
        try:
            return cls.model_validate(document)
        except ValidationError:
            return None

    @classmethod
    def from_file(cls, path: Path, max_bytes: int = reading.MAX_BYTES) -> Self | None:
        """Return a JSON file of this shape; None if it is missing, cannot be read, or has another one."""
        try:
            return cls.of(reading.json_file(path, max_bytes=max_bytes))
        except (FileNotFoundError, reading.UnreadableError):
            return None


def fits(shape: type[Shape], document: Any) -> bool:
    """Return whether a document has a shape."""
    return shape.of(document) is not None
