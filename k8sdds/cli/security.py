"""`k8sdds security`: create, inspect and verify DDS Security credentials."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from k8sdds.cli.commands import Commands, option
from k8sdds.cli.options import DryRun
from k8sdds.cli.output import Json, RowsOutput, print_table
from k8sdds.cli.terminal import print_line, print_step, print_text
from k8sdds.report.export import to_json
from k8sdds.system.errors import InputError
from k8sdds.system.files import require_new

app = Commands(help="Create, inspect and verify DDS Security credentials.")

Folder = Annotated[Path, "DIR: Folder of the credentials."]


@app.add("k8sdds security init credentials --subscribers 4 --days 30")
def init(
    folder: Folder,
    publishers: Annotated[
        int, option("--publishers N: Number of publishers: pub0, pub1, …", min=1, max=100)
    ] = 1,
    subscribers: Annotated[
        int, option("--subscribers N: Number of subscribers: sub0, sub1, …", min=1, max=100)
    ] = 1,
    days: Annotated[int, option("--days N: Validity in days.", min=1, max=3650)] = 365,
    key: Annotated[Literal["ec", "rsa"], "--key: Key type: EC P-256 or RSA 2048."] = "ec",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Create two certificate authorities, credentials per participant, and governance files for all levels.

    Campaigns do not need this: they create their own credentials and keep no private key.
    """
    from k8sdds.model.trial import participants
    from k8sdds.perftest import command
    from k8sdds.security import directory

    members = participants(publishers, subscribers)
    if dry_run:
        require_new(folder, directory.NEW_FOLDER)
        names = ", ".join(member.name for member in members)
        print_text(
            f"would create {folder}: two authorities and credentials of {names}, valid for {days} days"
        )
        return
    facts = directory.init(folder, members, days, key, range(command.DOMAINS.stop))
    if as_json:
        print_text(to_json(facts))
        return
    print_line(f"Created {folder}: {len(members)} participants, valid until {facts['not_after']}.\n"
        "Private keys of the participants: DIR/PARTICIPANT/key.pem. Private keys of the authorities:"
        f" DIR/{directory.AUTHORITY_KEYS}; do not copy them to any node.")  # fmt: skip
    print_step(f"Inspect the credentials: k8sdds security show {folder}")


@app.add("k8sdds security show credentials")
def show(folder: Folder, out: RowsOutput) -> None:
    """Show participants, permissions, expiry dates and fingerprints. Never shows a private key.

    The rows of --format csv are the participants.
    """
    from k8sdds.security import directory

    facts = directory.show(folder)
    participants = [{"participant": name, **facts["participants"][name]} for name in facts["participants"]]
    out.print(facts, lambda: _show(facts), rows=participants)


def _show(facts: dict[str, Any]) -> None:
    print_line(f"identity CA     sha256 {facts['identity_ca_sha256']}")
    print_line(f"permissions CA  sha256 {facts['permissions_ca_sha256']}")
    print_table(
        [
            {
                "participant": name,
                "subject": participant["subject"],
                "until": participant["not_after"][:10],
                "publishes": participant["publish"],
                "subscribes": participant["subscribe"],
                "sha256": participant["certificate_sha256"][:16] + "…",
            }
            for name, participant in facts["participants"].items()
        ]
    )
    print_line(f"governance: {', '.join(facts['levels'])}")


@app.add("k8sdds security check credentials")
def check(folder: Folder, out: RowsOutput) -> None:
    """Verify certificates, keys, signatures and expiry dates as a middleware would."""
    from k8sdds.security import directory

    findings = directory.check(folder)
    rows = [{"subject": finding.subject, "ok": finding.ok, "says": finding.message} for finding in findings]
    out.print(rows)
    bad = [finding for finding in findings if not finding.ok]
    if bad:
        raise InputError(
            f"{len(bad)} of {len(findings)} checks failed: "
            + "; ".join(f"{finding.subject}: {finding.message}" for finding in bad[:3]),
            "create new credentials: k8sdds security init NEW-DIR",
        )


@app.add("k8sdds security levels")
def levels(out: RowsOutput) -> None:
    """List the protection levels that experiments can use."""
    from k8sdds.security import levels as protection_levels

    described = {}
    for name in protection_levels.names():
        protection = protection_levels.load(name)
        described[name] = protection.describe() if protection else "no DDS Security"
    rows = [{"level": name, "protection": description} for name, description in described.items()]
    out.print(described, rows=rows)
