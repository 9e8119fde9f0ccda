"""Assemble the `k8sdds` command and map errors to messages and exit codes."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated

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
    doctor,
    images,
    import_,
    kubeconfig,
    lab,
    logs,
    network,
    nodes,
    report,
    reproduce,
    schema,
    security,
    show,
    status,
    testbed,
)
from k8sdds.cli import list as list_
from k8sdds.cli import run as run_
from k8sdds.system.errors import K8sddsError

app = typer.Typer(
    name="k8sdds",
    help="Measure what Kubernetes networks and DDS settings cost publish/subscribe applications at the edge.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
# click's base class of usage errors, reached through typer because newer versions of typer bundle click.
UsageProblem = typer.BadParameter.__mro__[2]
INTERNAL_ERROR = 70
"""Exit code of a defect in k8sdds itself (EX_SOFTWARE)."""


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"k8sdds {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    pass


# In the order of --help.
app.command("run")(run_.run)
app.command("testbed")(testbed.testbed)
app.command("list")(list_.list_)
app.command("show")(show.show)
app.command("schema")(schema.schema)
app.command("report")(report.report)
app.command("import")(import_.import_)
app.command("claims")(claims.claims)
app.command("compare")(compare.compare)
app.command("reproduce")(reproduce.reproduce)
app.command("doctor")(doctor.doctor)
app.command("clean")(clean.clean)
app.command("deploy")(deploy.deploy)
app.command("status")(status.status)
app.command("kubeconfig")(kubeconfig.kubeconfig)
app.command("logs")(logs.logs)
app.command("destroy")(destroy.destroy)
app.add_typer(lab.app, name="lab")
app.add_typer(network.app, name="network")
app.add_typer(nodes.app, name="nodes")
app.add_typer(bundle.app, name="bundle")
app.add_typer(images.app, name="images")
app.add_typer(artifact.app, name="artifact")
app.add_typer(security.app, name="security")


def run() -> None:
    """Run the command (the console script's entry point): every error becomes a message and an exit code."""
    try:
        # Standalone mode would swallow Ctrl-C without a message.
        code = app(standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except K8sddsError as error:
        print(f"k8sdds: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except UsageProblem as error:
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        print("k8sdds: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        sys.exit(_report_defect(error))


def _report_defect(error: Exception) -> int:
    """Write the traceback to a file and ask the user to report it; return the exit code."""
    with NamedTemporaryFile("w", prefix="k8sdds-defect-", suffix=".txt", delete=False) as file:
        file.write(f"k8sdds {__version__}, {sys.argv}\n\n")
        traceback.print_exception(error, file=file)
    print(
        f"k8sdds: internal error: {type(error).__name__}: {error}\n"
        f"  → this is a bug in k8sdds: please report it and attach {Path(file.name)}",
        file=sys.stderr,
    )
    return INTERNAL_ERROR
