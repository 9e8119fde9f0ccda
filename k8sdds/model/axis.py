"""Declare the settings of a trial on the fields of a model, and derive from them what users write in YAML."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic.fields import FieldInfo

from k8sdds.system.numbers import count
from k8sdds.system.strict import Strict, as_list, mistake


class Scope(StrEnum):
    """What a setting belongs to."""

    WORKLOAD = "workload"
    """What is sent, by and to how many. Plain UDP without DDS has it too."""
    DDS = "dds"
    """How a middleware sends it."""
    PROCESS = "process"
    """How k8sdds-perftest runs; other programs do not have it."""
    NETWORK = "network"
    """What carries the packets between participants."""
    MACHINE = "machine"
    """How the kernels of the nodes are set up."""
    POD = "pod"
    """Where participants run, and how the kernel runs them."""
    LOAD = "load"
    """What runs next to the participants."""


WORKLOAD, DDS, PROCESS, NETWORK, MACHINE, POD, LOAD = Scope


@dataclass(frozen=True)
class Axis:
    """A setting of a trial: `Annotated[TYPE, Axis(…)]` declares a field of `Cell`, or of a model in it, as one.

    The field has the default, the limits and the description. Everything else that k8sdds knows of a setting is here,
    and what reads, records, compares or describes settings is derived from it. `axes` fills in what is empty, and the
    last three attributes.
    """

    scope: Scope
    describe: Callable[[Any], str]
    """A phrase for people, such as `DSCP 46`. Empty if the value says nothing."""
    unset: str = ""
    """A phrase for no value, where it is compared with others; empty means `no` and the name."""
    since: int | None = None
    """First version of the record that has it; None if every version has it. Earlier versions measured its default."""
    key: str | None = ""
    """Key of a sweep; empty means the name of the field; None if users do not write it."""
    values: Any = None
    """Type of a value in YAML; None means the type of the field."""
    several: bool = True
    """Whether a sweep lists values, which are combined."""
    sweep_default: Any = None
    """Its value in a sweep that does not name it, if the field has no default."""
    of_experiment: bool = False
    """Whether an experiment has it for all of its sweeps."""
    choice: list[Any] | None = None
    """What applications choose from by default; empty if it depends on the application, None if they do not choose."""
    choice_as: str = ""
    """Description of the choice; empty means the description of the field."""
    in_captions: bool = False
    """Whether captions name the default too."""
    any_in_claims: bool = False
    """Whether a claim that does not name it is tested at every measured value. Otherwise at the default alone."""
    follows: tuple[str, ...] = ()
    """Settings, or `test`, that determine its value where users set none."""
    graph: Literal["applies", "stated", "refused"] = "applies"
    """Whether a graph test has it as others, states it in its text, or does not have it."""
    usual: Callable[[Mapping[str, Any]], Any] | None = None
    """Returns that value from a row of the tidy table; None if it is the default."""
    column: str = ""
    """Key of its column in the record; empty means the name of the field."""
    recorded_as: str = ""
    """Description of its column in the record; empty means the description of the field."""
    recorded_by: str = "experiment"
    """What provides the value of that column."""

    name: str = ""
    default: Any = None
    field: FieldInfo | None = None

    @property
    def description(self) -> str:
        """What it is, for the reference."""
        return (self.field and self.field.description) or ""

    @property
    def choice_field(self) -> Any:
        """The field of the choice."""
        least, description = 1 if self.choice else None, self.choice_as or self.description
        return Field(default=self.choice, min_length=least, description=description)

    @property
    def model(self) -> type[Strict] | None:
        """The model of its values, if they have parts."""
        kind = self.field and self.field.annotation
        return kind if isinstance(kind, type) and issubclass(kind, Strict) else None

    def recorded(self, value: Any) -> Any:
        """Return a value as a record has it: JSON, with text for a list or for a number that can also be a word."""
        if isinstance(value, Strict):
            return recorded(value)
        if isinstance(value, tuple):
            return "+".join(value)
        return (
            str(value)
            if self.column_type is str and value is not None and not isinstance(value, dict)
            else value
        )

    def is_recorded(self, value: Any) -> bool:
        """Return whether a record has this value: one that stands for nothing, such as no background, is left out."""
        return not (
            value in ("", None) or (self.since and isinstance(value, Strict) and value == self.default)
        )

    @property
    def recorded_default(self) -> Any:
        """The default as the tidy table has it."""
        if self.model is None:
            return self.recorded(self.default)
        return compact(self.recorded(self.default)) if self.is_recorded(self.default) else "none"

    def is_usual(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row of the tidy table has the value that a trial has where users set none."""
        value = row.get(self.name)
        if self.usual and value == self.usual(row):
            return True
        if self.model is None:
            return bool(value == self.recorded(self.default))
        return bool(self.parsed(value) == self.default)

    @property
    def column_type(self) -> Any:
        """The type of its column in the record."""
        kind = self.field and self.field.annotation
        if self.model:
            return dict[str, Any]
        for known in (bool, int, float):
            if kind in (known, known | None):
                return known
        if get_origin(kind) is list:
            (item,) = get_args(kind)
            # The limits of what users write, which an earlier version may not have had, are no part of the column.
            return list[get_args(item)[0] if get_origin(item) is Annotated else item]  # type: ignore[misc]
        if isinstance(self.default, int):
            return int
        return str | dict[str, Any] if "dict" in str(kind) else str

    def phrase(self, value: Any) -> str:
        """Describe a value of a cell, of a record or of the tidy table."""
        if value is None or value == "":
            return ""
        if self.model and not isinstance(value, Strict):
            parsed = self.parsed(value)
            return f"{self.name} {value}" if parsed is None else self.describe(parsed)
        return self.describe("+".join(value) if isinstance(value, tuple) else value)

    def parsed(self, value: Any) -> Any:
        """Return a value with parts from a record or from the tidy table, which has it as text.

        None if another version wrote a value that this one does not know.
        """
        if self.model is None or value in (None, "none"):
            return self.default
        with suppress(ValueError):
            return self.model.model_validate(json.loads(value) if isinstance(value, str) else value)
        return None


@cache
def axes(model: type[BaseModel]) -> Mapping[str, Axis]:
    """Return the settings that the fields of a model declare, by the name of the field."""
    return {
        name: replace(
            axis,
            name=name,
            key=name if axis.key == "" else axis.key,
            follows=(*axis.follows, "graph") if axis.graph == "stated" else axis.follows,
            column=axis.column or name,
            default=_default(field),
            field=field,
        )
        for name, field in model.model_fields.items()
        for axis in field.metadata
        if isinstance(axis, Axis)
    }


def compact(value: Mapping[str, Any]) -> str:
    """Return an object of a record as the tidy table has it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _default(field: FieldInfo) -> Any:
    return None if field.is_required() else field.get_default(call_default_factory=True)


def recorded(value: Strict) -> dict[str, Any]:
    """Return a value with parts as a record has it: without the defaults of parts that earlier versions do not have."""
    later = {name for name, part in axes(type(value)).items() if part.since}
    earlier = value.model_dump(mode="json", exclude=later)
    return earlier | value.model_dump(mode="json", include=later, exclude_defaults=True)


OneOrMore = BeforeValidator(as_list)


def _different(values: list[Any]) -> list[Any]:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise mistake(f"{value} is listed twice", index)
    return values


Different = AfterValidator(_different)
"""Refuses a list that has a value twice."""


def keys_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of a model for YAML that has each setting once or as a list, for `pydantic.create_model`."""
    return {axis.key: _key(axis) for axis in axes(model).values() if axis.key}


def lists_of(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys of that model whose lists are combined."""
    return tuple(axis.key for axis in axes(model).values() if axis.key and axis.several)


def _key(axis: Axis) -> tuple[Any, Any]:
    field = axis.field
    assert field is not None
    value = _value(axis)
    if axis.several:
        required = field.is_required() and axis.sweep_default is None
        default = ... if required else [_as_written(axis)]
        listed = Annotated[list[value], OneOrMore, Field(min_length=1), Different]  # type: ignore[valid-type]
        return listed, Field(default, description=field.description)
    if axis.of_experiment:
        return value | None, Field(default=None, description="as in the experiment, for this sweep only")
    return value, Field(default=axis.default, description=field.description)


def _value(axis: Axis) -> Any:
    assert axis.field is not None
    return axis.values or Annotated[(axis.field.annotation, *axis.field.metadata)]


def _as_written(axis: Axis) -> Any:
    """Return the default as a value of the type that users write."""
    value = axis.default if axis.sweep_default is None else axis.sweep_default
    return axis.values.model_validate(value) if hasattr(axis.values, "model_validate") else value


def choices_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the fields of a model for what an application may choose, for `pydantic.create_model`."""
    return {
        axis.key: (Annotated[list[_value(axis)], OneOrMore, Different], axis.choice_field)  # type: ignore[misc]
        for axis in axes(model).values()
        if axis.key and axis.choice is not None
    }


def payload(size: float) -> str:
    """Format a payload in bytes without rounding: `64 B`, `1400 B`, `1 KiB`, `1.5 KiB`."""
    size = int(size)
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor and (size * 2) % factor == 0:
            return f"{size / factor:g} {unit}"
    return f"{size} B"


def counted(thing: str) -> Callable[[Any], str]:
    """Return a function that describes a number of things: `1 topic`, `4 topics`."""
    return lambda value: count(value, thing)


def named(name: str, unset: Any = None, usual: str = "") -> Callable[[Any], str]:
    """Return a function that puts a name before a value; a value that means nothing is set has a phrase of its own."""
    return lambda value: usual if value == unset else f"{name} {value}"
