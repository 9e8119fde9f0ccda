"""Declare commands with examples, options in panels, and groups of options that several commands share."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import import_module
from operator import attrgetter
from typing import Annotated, Any, TypeVar, cast, get_type_hints

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


def option(text: str, panel: str = "", **settings: Any) -> Any:
    """Declare an option by a text such as `--output -o FILE: Help.`, or an argument by one such as `FILE: Help.`.

    `panel` is the one of the help that shows it.
    """
    spec, _, help = text.partition(": ")
    names = [word for word in spec.split() if word.startswith("-")]
    value = " ".join(word for word in spec.split() if not word.startswith("-"))
    if value in COMPLETIONS:
        settings.setdefault("autocompletion", completion(*COMPLETIONS[value]))
    declare: Any = typer.Option if names else typer.Argument
    return declare(*names, metavar=value or None, help=help, rich_help_panel=panel or None, **settings)


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


def _declared(annotation: Any) -> Any:
    """Declare the option of a text, such as `Annotated[Path, "--output -o FILE: Help.", "PANEL"]`."""
    texts = [text for text in getattr(annotation, "__metadata__", ()) if isinstance(text, str)]
    return Annotated[annotation.__origin__, option(*texts)] if texts else annotation


def _expanded(function: Function) -> Function:
    """Replace texts by the options that they declare, and dataclasses as types of parameters by their options."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        if dataclasses.is_dataclass(parameter.annotation):
            groups[name] = parameter.annotation
            hints = get_type_hints(groups[name], include_extras=True)
            options = inspect.signature(groups[name]).parameters.values()
            parameters += [option.replace(annotation=_declared(hints[option.name])) for option in options]
        else:
            parameters.append(parameter.replace(annotation=_declared(parameter.annotation)))

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
