"""Define sweeps of experiment files: the settings of trials, and lists of values that are combined."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, PrivateAttr, create_model, model_validator

from k8sdds.model.axis import keys_of, lists_of, require_unique
from k8sdds.model.trial import AXES, Cell
from k8sdds.system.strict import Strict, mistake

LISTS = lists_of(Cell)
"""The keys of a sweep whose lists are combined."""

if TYPE_CHECKING:

    class _Keys(Strict):
        def __getattr__(self, name: str) -> Any: ...

else:
    _Keys = create_model("_Keys", __base__=Strict, **keys_of(Cell))


class Sweep(_Keys):
    """All combinations of the listed values. A single value needs no list brackets."""

    capture: bool = Field(default=False, description=Cell.model_fields["capture"].description)

    _where: str = PrivateAttr("")

    @property
    def where(self) -> str:
        """`FILE:LINE: ` of the sweep, for messages; empty if it is not from a file."""
        return self._where

    def at(self, where: str) -> Sweep:
        """Return a copy of the sweep that is known to be from `FILE:LINE: `."""
        copy = self.model_copy()
        copy._where = where
        return copy

    @model_validator(mode="after")
    def _values_are_unique(self) -> Sweep:
        require_unique(self, LISTS)
        return self

    @model_validator(mode="after")
    def _limits_have_an_effect(self) -> Sweep:
        if any(self.flow_bytes) and "asynchronous" not in self.publish_mode:
            raise mistake("has no effect without `publish_mode: asynchronous`", "flow_bytes")
        if self.flow_period_ms != AXES["flow_period_ms"].default and not any(self.flow_bytes):
            raise mistake("has no effect without `flow_bytes`", "flow_period_ms")
        return self
