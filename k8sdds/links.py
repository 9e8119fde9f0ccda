"""Find named links, and resolve the links of experiments: what they take from others, and the files that they name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import Field, ValidationError, model_validator

from k8sdds.model import link_files
from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.axis import axes, lists_of
from k8sdds.model.experiment import Experiment, Sweep
from k8sdds.model.impairments import PARTS, Direction, with_files
from k8sdds.model.link import KERNEL, SHORT, USERSPACE, Link
from k8sdds.model.link_choice import LinkChoice
from k8sdds.system import reading, yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.shipped import ShippedFiles
from k8sdds.system.strict import MAX_TITLE, Name, Remarks, Title, mistake

LINKS = ShippedFiles(("links",), "link", "k8sdds list links")
C = TypeVar("C", bound=LinkChoice)
E = TypeVar("E", bound=Experiment)
BOTH = {**SHORT, **{part: part for part in PARTS}}
"""Keys that set a part for both directions."""


class NamedLink(LinkChoice):
    """A file in `links/`: a link with a name, and where its values come from."""

    page: ClassVar[str] = "links"

    name: Name = Field(description="name of the link")
    title: Title = Field(default="", description="what it is a model of")
    description: Remarks = Field(default="", description="remarks")
    sources: dict[str, str] = Field(
        default={},
        description="where the values come from: key, such as `up.delay`, to a paper or data set with its conditions,"
        " or `assumption: …`",
    )

    @model_validator(mode="after")
    def _stands_alone(self) -> NamedLink:
        if self.like:
            raise mistake("a file of a link states all of its values", "like")
        for name in lists_of(Link):
            if len(getattr(self, name)) > 1:
                raise mistake("a link has one value", name)
        known = [*keys(self.model_dump(mode="json", exclude=set(ABOUT)))]
        for key in self.sources:
            if not any(f"{name}.".startswith(f"{key}.") for name in known):
                raise mistake(f"there is no value {key!r}{yaml_text.nearest(key, known)}", "sources")
        return self


ABOUT = ("name", "title", "description", "sources", "like")
"""Keys in the file of a link that impair nothing."""
APART = (*lists_of(Link), "engine")
"""Settings that are not part of what a name stands for: descriptions state them next to the name."""


def keys(data: Any, above: str = "") -> dict[str, Any]:
    """Return the values of nested mappings by their dotted key, such as `up.delay.mean_us`."""
    if not isinstance(data, dict):
        return {above: data}
    found: dict[str, Any] = {}
    for key, value in data.items():
        found |= keys(value, f"{above}.{key}" if above else key)
    return found


def is_link(name: str) -> bool:
    """Return whether this is the name of an installed link, or the file of a link and not of an experiment."""
    if name in LINKS.names():
        return True
    try:
        _, text = LINKS.read(name)
    except InputError:
        return False
    known = yaml_text.top_keys(text)
    return bool(known & LinkChoice.model_fields.keys() - {"name"}) and not known & {"sweeps", "flows"}


def load(name: str) -> NamedLink:
    """Return an installed link by its name, or one from a YAML file by its path."""
    path, text = LINKS.read(name)
    return relative_to(path.parent, yaml_text.parse(text, NamedLink, str(path)))


def relative_to(folder: Path, choice: C) -> C:
    """Return the choice with the files that it names, which are relative to this folder."""
    placed = with_files(choice, lambda part: {"file": str(folder / part.file)} if part.file else {})
    if placed.like and LINKS.is_path(placed.like):
        return placed.model_copy(update={"like": str(folder / placed.like)})
    return placed


def resolve(choice: LinkChoice) -> LinkChoice:
    """Return the choice with the values of the link that it is like, and the SHA-256 of its files."""
    if choice.like:
        base = load(choice.like)
        data = _changed(base, choice) | {"name": _name(base, choice)}
        try:
            choice = LinkChoice.model_validate(data)
        except ValidationError as error:
            wrong = yaml_text.mistakes(error, choice.model_dump(), LinkChoice)
            raise InputError(
                "; ".join(f"link like {choice.like}: {each.key}: {each.message}" for each in wrong),
                "see: k8sdds docs links",
            ) from error
    return link_files.checked(choice)


def resolved(experiment: E) -> E:
    """Return the experiment with all values of its links, as `resolve` does. Loading an experiment calls this once."""
    experiment = experiment.with_links(resolve)
    named: dict[str, Link] = {}
    for link in (link for choice in experiment.links for link in choice.each()):
        alone = link.model_copy(update={name: axes(Link)[name].default for name in APART})
        if link.name and named.setdefault(link.name, alone) != alone:
            raise InputError(
                f"two different links are named {link.name!r}", "give one of them another `name`"
            )
    return experiment


def allows(wanted: Link, measured: Link | None) -> bool:
    """Return whether the link of an application allows trials over a measured link; None: that one is not known.

    Without impairments or other keys, it allows any link. Otherwise it allows itself, and may leave the engine open.
    """
    if wanted == Link() or measured is None:
        return wanted == Link()
    engine = {"engine": "auto"} if wanted.engine == "auto" else {}
    return measured.without_places().model_copy(update=engine) == wanted.without_places()


def with_engines(experiment: E, has_netem: bool, has_queues: bool = True) -> E:
    """Return the experiment with an engine for every link that needs one and for which the user sets none.

    Links with nothing but the short keys of `SHORT` keep the queues and rules of the kernel, as in earlier versions, if
    the testbed `has_queues` and the kernel has what their delay needs.
    """

    def with_engine(choice: LinkChoice) -> LinkChoice:
        link = choice.link
        kernel_cannot = bool((link.delay_us and not has_netem) or (link.is_shaped and not has_queues))
        if link.engine != "auto" or not (link.exceeds_short_keys or kernel_cannot):
            return choice
        engine = KERNEL if has_netem and not link.kernel_obstacle else USERSPACE
        return choice.model_copy(update={"engine": engine})

    return experiment.with_links(with_engine)


def with_forwarders(experiment: E, needs_forwarder: Callable[[Sweep], bool]) -> E:
    """Return the experiment with `k8sdds-link` as the engine of links for which the user sets none.

    `needs_forwarder` decides for all tests of a sweep, because these are measured over the same links, so that they can
    be compared. The flows of an application need none.
    """
    if isinstance(experiment, ApplicationExperiment):
        return experiment

    def forwarded(choice: LinkChoice) -> LinkChoice:
        return choice.model_copy(update={"engine": USERSPACE}) if choice.engine == "auto" else choice

    sweeps = [
        sweep.model_copy(update={"link": [*map(forwarded, sweep.link or experiment.link)]})
        if needs_forwarder(sweep)
        else sweep
        for sweep in experiment.sweeps
    ]
    return experiment.model_copy(update={"sweeps": sweeps})


def _changed(base: NamedLink, choice: LinkChoice) -> dict[str, Any]:
    """Return the values of a link with the changes of a choice: a key for both directions replaces those of each."""
    data = {name: getattr(base, name) for name in base.model_fields_set - set(ABOUT)}
    changes = {
        name: getattr(choice, name) for name in LinkChoice.model_fields if name in choice.model_fields_set
    }
    for name, value in changes.items():
        if name in BOTH:
            part = BOTH[name]
            for other in (name for name, of in BOTH.items() if of == part):
                data.pop(other, None)
            for direction in ("up", "down"):
                if direction in data:
                    data[direction] = data[direction].model_copy(update={part: None})
        elif isinstance(value, Direction) and name in data:
            value = value.over(data[name])
        if name not in ABOUT:
            data[name] = value
    return data


def _name(base: NamedLink, choice: LinkChoice) -> str:
    """Return the name of a link: that of its file, with what the choice changes, unless the choice has one."""
    if choice.name:
        return str(choice.name)
    changes = [
        axis.describe(getattr(choice, name)) or f"no {name}"
        for name, axis in axes(Link).items()
        if name in choice.model_fields_set - {*APART, *ABOUT} and getattr(choice, name) is not None
    ]
    return reading.one_line(", ".join([base.name, *changes]), MAX_TITLE)
