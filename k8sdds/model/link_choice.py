"""Define how users write the links of an experiment or application: a name, a mapping, or a list of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import (
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    WrapSerializer,
    create_model,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from k8sdds.model.axis import OneOrMore, keys_of, lists_of
from k8sdds.model.link import Link
from k8sdds.system.strict import Strict, short_for

if TYPE_CHECKING:

    class _Keys(Strict):
        def __getattr__(self, name: str) -> Any: ...

else:
    _Keys = create_model("_Keys", __base__=Strict, **keys_of(Link))


class LinkChoice(_Keys):
    """The links between the nodes and their switch. Lists are combined."""

    like: str = Field(
        default="",
        max_length=4096,
        description="take the values of this link, by its name (`k8sdds list links`) or file, and change those that"
        " are set here. `link: NAME` is short for `link: {like: NAME}`",
    )

    _from_text = short_for("like")

    @model_validator(mode="after")
    def _each_is_possible(self) -> LinkChoice:
        if not self.like:
            _ = self.link
        return self

    @model_serializer(mode="wrap")
    def _as_written(self, dump: SerializerFunctionWrapHandler) -> Any:
        """Leave out what is not set, because a value that is set replaces that of `like`."""
        return {name: value for name, value in dump(self).items() if name in self.model_fields_set}

    @property
    def count(self) -> int:
        """The number of combinations."""
        return math.prod(len(getattr(self, name)) for name in lists_of(Link))

    @property
    def link(self) -> Link:
        """The link of a choice that has only one, or the first one."""
        return next(self.each())

    def each(self) -> Iterator[Link]:
        """Yield the links of all combinations of a choice whose `like` `k8sdds.links.resolve` has replaced."""
        assert not self.like, f"link like {self.like}"
        lists = lists_of(Link)
        single = {name: getattr(self, name) for name in Link.model_fields if name not in lists}
        if self.rate and self.rate.mbit and not self.rate_mbit:
            # Both forms are one link, which has one id.
            single |= {"rate_mbit": self.rate.mbit, "rate": None}
        for values in itertools.product(*(getattr(self, name) for name in lists)):
            yield Link(**single, **dict(zip(lists, values, strict=True)))


def _one_or_all(choices: list[LinkChoice], dump: SerializerFunctionWrapHandler) -> Any:
    """Return a single link without a list, as users write it."""
    dumped = dump(choices)
    return dumped[0] if len(dumped) == 1 else dumped


class _OneOrSeveral:
    """The JSON Schema of links as users write them: one, or a list; each a mapping or a name."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        listed = handler(core)
        one = [listed["items"], {"type": "string"}]
        return {"anyOf": [*one, listed | {"items": {"anyOf": one}}]}


LinkChoices = Annotated[
    list[LinkChoice],
    OneOrMore,
    Field(min_length=1, max_length=100),
    WrapSerializer(_one_or_all),
    _OneOrSeveral(),
]
"""A link, or several to measure one after the other."""
