"""Assemble the `k8sdds` command: its options, subcommands and help."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from k8sdds import __version__
from k8sdds.cli.commands import listing, option
from k8sdds.cli.terminal import Verbosity, set_verbosity
from k8sdds.system.errors import EXIT_CODES, InputError
from k8sdds.system.yaml_text import nearest

FIRST_COMMANDS = (
    "k8sdds recommend teleoperation      # which network and DDS settings, and why",
    "k8sdds run quickstart               # what each network costs, in 2 minutes",
    "k8sdds init application my-robot    # describe what your application sends",
)
PANELS = {
    "Start here": "recommend run list init docs",
    "Measure": "show testbed reproduce schema security",
    "Analyze": "report compare claims import_",
    "Cluster": "deploy deployed network policy nodes",
    "Lab": "machine lab",
    "Package": "bundle images artifact",
}
"""Modules of commands by panel of `k8sdds --help`, in the order in which a newcomer needs them."""

app = typer.Typer(
    name="k8sdds",
    help="Measure what Kubernetes networks and DDS settings cost publish/subscribe applications at the edge.",
    epilog="\n\n".join(
        [
            listing("Examples:", FIRST_COMMANDS),
            listing("Exit codes:", [f"{code:>3}  {meaning}" for code, meaning in EXIT_CODES.items()]),
        ]
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _panel, _modules in PANELS.items():
    for _name in _modules.split():
        _commands = import_module(f"k8sdds.cli.{_name}").app
        if _commands.info.help:
            app.add_typer(_commands, name=_name, rich_help_panel=_panel)
        for _command in () if _commands.info.help else _commands.registered_commands:
            _command.rich_help_panel = _panel
            app.registered_commands.append(_command)
# click's base class of usage errors, reached through typer because newer versions of typer bundle click.
UsageProblem: Any = typer.BadParameter.__mro__[2]


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"k8sdds {__version__}")
        raise typer.Exit


def _set(verbosity: Verbosity) -> Callable[[bool], None]:
    return lambda requested: set_verbosity(verbosity) if requested else None


@app.callback()
def _options(
    version: Annotated[
        bool, option("--version: Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    verbose: Annotated[
        bool,
        option(
            "--verbose -v: Also print the commands that k8sdds runs, and the causes of errors.",
            callback=_set(Verbosity.VERBOSE),
            expose_value=False,
        ),
    ] = False,
    quiet: Annotated[
        bool,
        option(
            "--quiet -q: Print only results and errors.", callback=_set(Verbosity.QUIET), expose_value=False
        ),
    ] = False,
) -> None:
    pass


@cache
def command_tree() -> Any:
    """Return the whole command, in which every command accepts `--verbose` and `--quiet`."""
    root = typer.main.get_command(app)
    everywhere = [param for param in root.params if param.name in ("verbose", "quiet")]
    context = typer.Context(root, **root.context_settings)

    def extend(command: Any) -> None:
        # Typer keeps the line breaks of docstrings after the first paragraph.
        command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help or "")
        for below in getattr(command, "commands", {}).values():
            if not hasattr(below, "commands"):
                below.params.extend(everywhere)
            extend(below)
        # Newer versions of typer show the type of a flag, as if the flag took a value.
        for param in (*command.params, command.get_help_option(context)):
            if getattr(param, "is_flag", False):
                param.metavar = ""

    extend(root)
    return root


def invoke() -> int:
    """Run the command of sys.argv and return its exit code. Raises what it raises, with usage errors as InputError."""
    try:
        # Standalone mode would swallow Ctrl-C without a message.
        code = command_tree()(prog_name="k8sdds", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except UsageProblem as error:
        # typer checks values with pydantic, whose messages have a prefix.
        message = " ".join(error.format_message().replace("Value error, ", "").split()).rstrip(".")
        if not message:  # a group without a command, which shows its help
            error.show()
            return int(error.exit_code)
        if chosen := re.search(r"'([^']*)' is not one of ('.+')$", message):
            known = re.findall(r"'([^']+)'", chosen[2])
            close = nearest(chosen[1], known)
            message += close if "did you mean" in close else ""
        context = getattr(error, "ctx", None)
        command = context.command_path if context else "k8sdds"
        raise InputError(message[0].lower() + message[1:], f"see: {command} --help") from None
    except typer.Abort as abort:
        raise KeyboardInterrupt from abort
