"""Define the parts of JSON documents that others wrote, so that code that uses their values does not check them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

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


def fits(shape: type[Shape], document: Any) -> bool:
    """Return whether a document has a shape."""
    try:
        shape.model_validate(document)
    except ValidationError:
        return False
    return True
