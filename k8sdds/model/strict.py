"""The base of everything that users write."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Unknown keys are errors, values are immutable."""

    page: ClassVar[str] = ""
    """Which page explains the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
