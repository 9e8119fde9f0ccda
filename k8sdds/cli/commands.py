"""Declare commands with examples, options in panels, and groups of options that several commands share."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import partial, wraps
from importlib import import_module
from operator import attrgetter
from typing import Any, TypeVar, cast, get_type_hints

import typer

Function = TypeVar("Function", bound=Callable[..., None])

REST_IS_A_COMMAND = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Context of a command whose last argument is the command line of another program."""
COMPLETIONS = {
    "APPLICATION": ("campaign.applications", "APPLICATIONS.names"),
    "EXPERIMENT": ("campaign.applications", "EXPERIMENTS_AND_APPLICATIONS.names"),
    "LINK": ("links", "LINKS.names"),
    "NETWORK": ("networks", "NETWORKS"),
    "PROFILE": ("deploy.profiles", "PROFILES.names"),
    "PURPOSE": ("setup", "PURPOSES"),
    "STUDY [CLAIM]": ("claims", "CLAIMS.names"),
    "TOPIC": ("cli.docs", "topics"),
}
"""What the shell completes for a value of this name: module of k8sdds and the names in it."""


def completion(module: str, names: str) -> Callable[[str], list[str]]:
    """Return a completion of the names in a module of k8sdds, which is imported only when the shell completes."""

    def complete(incomplete: str) -> list[str]:
        found = attrgetter(names)(import_module(f"k8sdds.{module}"))
        return [name for name in (found() if callable(found) else found) if name.startswith(incomplete)]

    return complete


def option(spec: str, help: str, **settings: Any) -> Any:
    """Declare an option, such as `--output -o FOLDER`: its names, and what its value is called unless it is a flag."""
    names = [word for word in spec.split() if word.startswith("-")]
    value = " ".join(word for word in spec.split() if not word.startswith("-"))
    if value in COMPLETIONS:
        settings["autocompletion"] = completion(*COMPLETIONS[value])
    return typer.Option(*names, metavar=value or None, help=help, **settings)


def argument(name: str, help: str, **settings: Any) -> Any:
    """Declare an argument, named as in the help."""
    if name in COMPLETIONS:
        settings["autocompletion"] = completion(*COMPLETIONS[name])
    return typer.Argument(metavar=name, help=help, **settings)


# Options by panel of a command's help.
selection_option = partial(option, rich_help_panel="Selection")
testbed_option = partial(option, rich_help_panel="Testbed")
machines_option = partial(option, rich_help_panel="Machines")
output_option = partial(option, rich_help_panel="Output")


class Commands(typer.Typer):
    """The commands of a module: a group with a help text, or commands of `k8sdds` itself without one."""

    def __init__(self, help: str = "") -> None:
        super().__init__(help=help, no_args_is_help=True)

    def add(self, *lines: str, **settings: Any) -> Callable[[Function], Function]:
        """Add a function as a command of its name, with examples: command lines that work as written."""

        def register(function: Function) -> Function:
            name = function.__name__.strip("_")
            epilog = listing("Examples:" if len(lines) > 1 else "Example:", lines)
            return self.command(name, epilog=epilog, **settings)(_expanded(function))

        return register


def listing(title: str, lines: Sequence[str]) -> str:
    """Return a title and lines for the end of a command's help."""
    # Typer reads brackets as markup.
    return "\n".join([f"[bold]{title}[/bold]", *(line.replace("[", r"\[") for line in lines)])


def _expanded(function: Function) -> Function:
    """Replace each parameter whose type is a dataclass by the options that the dataclass declares."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if dataclasses.is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            hints = get_type_hints(groups[name], include_extras=True)
            options = inspect.signature(groups[name]).parameters.values()
            parameters += [option.replace(annotation=hints[option.name]) for option in options]
        else:
            parameters.append(parameter)

    @wraps(function)
    def command(*arguments: Any, **values: Any) -> None:
        for name, group in groups.items():
            if name not in values:
                options = [field.name for field in dataclasses.fields(group) if field.name in values]
                values[name] = group(**{option: values.pop(option) for option in options})
        function(*arguments, **values)

    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    command.__annotations__ = {}
    return cast(Function, command)
