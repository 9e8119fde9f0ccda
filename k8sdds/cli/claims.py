"""`k8sdds claims`: judge claims with the data of run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from k8sdds.cli.commands import Commands, option
from k8sdds.cli.options import ClaimsFile
from k8sdds.cli.output import Consequences, TablesOutput
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import InputError

app = Commands()


@app.add("k8sdds claims --list", "k8sdds claims runs/paper runs/mine --only flannel-vxlan-slower")
def claims(
    runs: Annotated[
        list[Path] | None, option("RUN: Run folders, measured or imported.", show_default=False)
    ] = None,
    file: ClaimsFile = "k8sdds-paper",
    only: Annotated[
        list[str] | None, "--only ID: Judge only this claim (repeatable). Default: all claims."
    ] = None,
    list_: Annotated[bool, "--list: List the claims and the commands that measure them."] = False,
    *,
    after: Consequences,
    out: TablesOutput,
) -> None:
    """Judge claims with the data of run folders: supported or contradicted, and by which test."""
    from k8sdds import claims as claim_files

    loaded = claim_files.load(file)
    for claim_id in only or ():
        claim_files.find(loaded, claim_id)
    if list_:
        keys = ("id", "claim", "paper", "command", "because")
        out.print([{key: getattr(claim, key) for key in keys} for claim in loaded.claims])
        return
    if not runs:
        raise InputError(
            "no run folder given", "give run folders: k8sdds claims runs/*; or list the claims: --list"
        )
    from k8sdds.claims.judge import judge
    from k8sdds.report import claims as claims_report

    judged = judge(loaded, [RunFolder.open(run) for run in runs], only or ())
    after.print(claims_report.findings(loaded, judged), out)
