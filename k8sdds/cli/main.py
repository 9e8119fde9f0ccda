"""The command `k8sdds`: its parts, and how errors end it."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated

import typer

from k8sdds import __version__
from k8sdds.cli import (
    analysis,
    artifact,
    bundle,
    deploy,
    experiments,
    images,
    lab,
    machine,
    network,
    nodes,
    security,
    testbed,
)
from k8sdds.cli import import_ as importing
from k8sdds.cli import report as results
from k8sdds.cli import reproduce as reproducing
from k8sdds.cli import run as running
from k8sdds.system.errors import K8sddsError

app = typer.Typer(
    name="k8sdds",
    help="Which Kubernetes network, and which DDS settings, for publish/subscribe at the edge? Measured.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
# click's base of usage errors, by way of typer: newer ones bring a click of their own.
UsageProblem = typer.BadParameter.__mro__[2]
INTERNAL_ERROR = 70
"""Exit code of a defect in k8sdds itself (EX_SOFTWARE)."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"k8sdds {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and end.")
    ] = False,
) -> None:
    pass


app.command("run")(running.run)
app.command("testbed")(testbed.testbed)
app.command("list")(experiments.list_)
app.command("show")(experiments.show)
app.command("schema")(experiments.schema)
app.command("report")(results.report)
app.command("import")(importing.import_)
app.command("claims")(analysis.claims)
app.command("compare")(analysis.compare)
app.command("reproduce")(reproducing.reproduce)
app.command("doctor")(machine.doctor)
app.command("clean")(machine.clean)
app.command("deploy")(deploy.deploy)
app.command("status")(deploy.status)
app.command("kubeconfig")(deploy.kubeconfig)
app.command("logs")(deploy.logs)
app.command("destroy")(deploy.destroy)
app.add_typer(lab.app, name="lab")
app.add_typer(network.app, name="network")
app.add_typer(nodes.app, name="nodes")
app.add_typer(bundle.app, name="bundle")
app.add_typer(images.app, name="images")
app.add_typer(artifact.app, name="artifact")
app.add_typer(security.app, name="security")


def run() -> None:
    """Entry point of the console script: every error ends in a message, a remedy and an exit code."""
    try:
        # Not standalone: that would swallow Ctrl-C without a word.
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
        sys.exit(_defect(error))


def _defect(error: Exception) -> int:
    with NamedTemporaryFile("w", prefix="k8sdds-defect-", suffix=".txt", delete=False) as file:
        file.write(f"k8sdds {__version__}, {sys.argv}\n\n")
        traceback.print_exception(error, file=file)
    print(
        f"k8sdds: a defect in k8sdds itself: {type(error).__name__}: {error}\n"
        f"  → please report it with {Path(file.name)}",
        file=sys.stderr,
    )
    return INTERNAL_ERROR
