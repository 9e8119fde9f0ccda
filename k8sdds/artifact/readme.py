"""README.md of an artifact, for who evaluates it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from k8sdds import __version__
from k8sdds.claims import PAPER
from k8sdds.system.templates import templates

if TYPE_CHECKING:
    from k8sdds.artifact.archive import Description, Run
    from k8sdds.claims.model import Claims

DISK_OF_SETUP = "about 2 GB"
"""Disk of `make setup`: Debian packages, Python packages, native programs."""


def text(runs: list[Run], description: Description, claims: Claims, judged: list[dict[str, Any]]) -> str:
    """The README as Markdown: what it is, and the ACM badges (Artifact Review and Badging 1.1) in turn."""
    environment = templates("k8sdds.artifact", html=False)
    # A pipe would end a table's cell.
    environment.filters["cell"] = lambda value: str(value).replace("|", "\\|").replace("\n", " ")
    environment.filters["size"] = size
    environment.filters["minutes"] = minutes
    return environment.get_template("README.md.j2").render(
        description=description,
        runs=runs,
        claims=claims,
        judged=judged,
        paper=PAPER,
        version=__version__,
        setup_disk=DISK_OF_SETUP,
        again=again,
    )


def again(run: Run) -> str:
    """The command that measures a run anew, from the packed experiment and with the same order."""
    seed = run.folder.campaign.get("seed")
    words = ["k8sdds", "run", f"runs/{run.name}/experiment.yaml", "--output", f"again/{run.name}"]
    return shlex.join([*words, *(["--seed", str(seed)] if isinstance(seed, int) else [])])


def size(count: float) -> str:
    """Bytes for people: `18 MB`."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.3g} {unit}"
    return f"{count:.0f} B"


def minutes(value: float) -> str:
    """Minutes for people: `under 1 min`, `15 min`, `2.5 h`."""
    if value < 1:
        return "under 1 min"
    return f"{value:.0f} min" if value < 100 else f"{value / 60:.1f} h"
