"""Write the README.md of an artifact, for its evaluators."""

from __future__ import annotations

import html
import shlex
from typing import TYPE_CHECKING, Any

from k8sdds import __version__
from k8sdds.claims import PAPER
from k8sdds.results.run_folder import EXPERIMENT
from k8sdds.system.numbers import format_duration
from k8sdds.system.templates import templates

if TYPE_CHECKING:
    from k8sdds.artifact.contents import Description, PackedRun
    from k8sdds.claims.model import Claims

DISK_OF_SETUP = "about 2 GB"
"""Disk space that `k8sdds setup` needs: Debian packages, Python packages, native programs."""


def text(
    runs: list[PackedRun], description: Description, claims: Claims, judged: list[dict[str, Any]]
) -> str:
    """Return the README in Markdown, structured by the ACM badges (Artifact Review and Badging 1.1)."""
    environment = templates("k8sdds.artifact", html=False)
    environment.filters["cell"] = cell
    environment.filters["code"] = lambda value: f"`{cell(value, code=True)}`"
    environment.filters["quote"] = lambda value: shlex.quote(str(value))
    environment.filters["size"] = size
    environment.filters["minutes"] = lambda value: format_duration(60 * value)
    return environment.get_template("README.md.j2").render(
        description=description,
        runs=runs,
        claims=claims,
        judged=judged,
        paper=PAPER,
        version=__version__,
        setup_disk=DISK_OF_SETUP,
        repeat_command=repeat_command,
    )


def cell(value: Any, code: bool = False) -> str:
    """Return text for a cell of a table, or with `code` for a code span in it, that starts no other markup."""
    text = " ".join(str(value).split()).replace("|", "\\|")
    return (
        text.replace("`", "'")
        if code
        else html.escape(text, quote=False).replace("[", "\\[").replace("`", "\\`")
    )


def repeat_command(run: PackedRun) -> str:
    """Return the command that repeats a run from the packed experiment, in the same random order."""
    return run.folder.repeat_command(f"runs/{run.name}/{EXPERIMENT}", "--output", f"again/{run.name}")


def size(count: float) -> str:
    """Format a number of bytes: `18 MB`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"
