"""The base class of everything that users write in YAML."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A model that rejects unknown keys and whose values are immutable."""

    page: ClassVar[str] = ""
    """The documentation page that explains the keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
