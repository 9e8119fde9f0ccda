"""Assemble the `k8sdds` command: its options, subcommands and help."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any

import typer

from k8sdds import __version__
from k8sdds.cli import (
    artifact,
    bundle,
    claims,
    clean,
    compare,
    deploy,
    destroy,
    docs,
    doctor,
    history,
    images,
    import_,
    init,
    kubeconfig,
    lab,
    logs,
    network,
    nodes,
    recommend,
    report,
    reproduce,
    runs,
    schema,
    security,
    setup,
    show,
    status,
    testbed,
)
from k8sdds.cli import list as list_
from k8sdds.cli import run as run_
from k8sdds.cli.help import ANALYZE, CLUSTER, LAB, MEASURE, PACKAGE, START, examples, overview
from k8sdds.cli.terminal import Verbosity, set_verbosity
from k8sdds.system.errors import InputError
from k8sdds.system.yaml_text import nearest

app = typer.Typer(
    name="k8sdds",
    help="Measure what Kubernetes networks and DDS settings cost publish/subscribe applications at the edge.",
    epilog=overview(),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
# click's base class of usage errors, reached through typer because newer versions of typer bundle click.
UsageProblem = typer.BadParameter.__mro__[2]


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"k8sdds {__version__}")
        raise typer.Exit


def _set_verbose(requested: bool) -> None:
    if requested:
        set_verbosity(Verbosity.VERBOSE)


def _set_quiet(requested: bool) -> None:
    if requested:
        set_verbosity(Verbosity.QUIET)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            callback=_set_verbose,
            expose_value=False,
            help="Also print the commands that k8sdds runs, and the causes of errors.",
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            callback=_set_quiet,
            expose_value=False,
            help="Print only results and errors.",
        ),
    ] = False,
) -> None:
    pass


def _add(panel: str, name: str, function: Callable[..., None], *lines: str) -> None:
    """Add a command with examples to a panel of `--help`."""
    app.command(name, rich_help_panel=panel, epilog=examples(*lines))(function)


def _add_group(panel: str, name: str, group: typer.Typer) -> None:
    """Add a group of commands to a panel of `--help`."""
    app.add_typer(group, name=name, rich_help_panel=panel)


# In the order of --help, which is the order in which a newcomer needs them.
_add(
    START, "recommend", recommend.recommend,
    "k8sdds recommend teleoperation",
    "k8sdds recommend ./my-robot.yaml --network weavenet --max-trials 60",
    "k8sdds recommend ./my-robot.yaml --from runs/a --from runs/b --json",
)  # fmt: skip
_add(
    START, "run", run_.run,
    "k8sdds run quickstart",
    "k8sdds run ./my-camera.yaml --set 'payload_bytes=4 KiB' --dry-run",
    "k8sdds run teleoperation --network flannel-hostgw",
)  # fmt: skip
_add(START, "list", list_.list_, "k8sdds list", "k8sdds list applications", "k8sdds list networks")
_add(
    START, "init", init.init,
    "k8sdds init application my-robot --like teleoperation",
    "k8sdds init profile lab --node pi@192.0.2.10 --node pi@192.0.2.11",
    "k8sdds init rights --like namespace",
)  # fmt: skip
_add(START, "docs", docs.docs, "k8sdds docs", "k8sdds docs experiments")
_add(
    MEASURE, "show", show.show,
    "k8sdds show quickstart",
    "k8sdds show multicast-12sub --commands --set payload_bytes=[64,1024]",
)  # fmt: skip
_add(
    MEASURE, "testbed", testbed.testbed,
    "k8sdds testbed",
    "k8sdds testbed lab",
    "k8sdds testbed cluster --kubeconfig ~/.kube/config -n robots",
)  # fmt: skip
_add(
    MEASURE, "reproduce", reproduce.reproduce,
    "k8sdds reproduce k8sdds-paper --dry-run",
    "k8sdds reproduce k8sdds-paper flannel-vxlan-slower --with runs/paper",
    "k8sdds reproduce --resume runs/20261123T021500Z-k8sdds-paper",
)  # fmt: skip
_add(MEASURE, "schema", schema.schema, "k8sdds schema experiment", "k8sdds schema profile")
_add_group(MEASURE, "security", security.app)
_add(
    ANALYZE, "report", report.report,
    "k8sdds report @last",
    "k8sdds report runs/mine --json",
    "k8sdds report runs/mine --serve",
)  # fmt: skip
_add(ANALYZE, "runs", runs.runs, "k8sdds runs", "k8sdds runs study/runs --json")
_add(
    ANALYZE, "compare", compare.compare,
    "k8sdds compare runs/monday runs/tuesday runs/friday --overheads",
    "k8sdds compare @last@host @last@flannel-vxlan --output out",
    "k8sdds compare runs/a runs/b --fail-if 'worse and change_percent < -5'",
)  # fmt: skip
_add(
    ANALYZE, "history", history.history,
    "k8sdds history runs/nightly-*",
    "k8sdds history runs/nightly-* --output out --fail-if 'worse'",
)  # fmt: skip
_add(
    ANALYZE, "claims", claims.claims,
    "k8sdds claims --list",
    "k8sdds claims runs/paper runs/mine --only flannel-vxlan-slower",
)  # fmt: skip
_add(
    ANALYZE, "import", import_.import_,
    "k8sdds import published-logs --output runs/paper",
    "k8sdds import logs -o runs/other --map 'vx*:network=flannel-vxlan'",
)  # fmt: skip
_add(
    CLUSTER, "deploy", deploy.deploy,
    "k8sdds deploy one-machine",
    "k8sdds deploy ./my-lab.yaml --dry-run",
    "k8sdds deploy ./my-lab.yaml --limit worker2 --yes",
)  # fmt: skip
_add(CLUSTER, "status", status.status, "k8sdds status ./my-lab.yaml", "k8sdds status ./my-lab.yaml --json")
_add(CLUSTER, "kubeconfig", kubeconfig.kubeconfig, "k8sdds kubeconfig one-machine --path")
_add(CLUSTER, "logs", logs.logs, "k8sdds logs one-machine --output logs.tar.gz")
_add(
    CLUSTER, "destroy", destroy.destroy, "k8sdds destroy one-machine", "k8sdds destroy ./my-lab.yaml --purge"
)
_add_group(CLUSTER, "network", network.app)
_add_group(CLUSTER, "nodes", nodes.app)
_add(LAB, "setup", setup.setup, "k8sdds setup", "k8sdds setup --for deploy-arm64", "k8sdds setup --dry-run")
_add(LAB, "doctor", doctor.doctor, "k8sdds doctor", "k8sdds doctor --json")
_add(LAB, "clean", clean.clean, "k8sdds clean", "k8sdds clean --all", "k8sdds clean --testbed cluster")
_add_group(LAB, "lab", lab.app)
_add_group(PACKAGE, "bundle", bundle.app)
_add_group(PACKAGE, "images", images.app)
_add_group(PACKAGE, "artifact", artifact.app)


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
