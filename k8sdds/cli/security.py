"""`k8sdds security`: create, inspect and verify DDS Security credentials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from k8sdds.cli.help import examples
from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, print_step, print_text
from k8sdds.system.errors import InputError

app = typer.Typer(help="Create, inspect and verify DDS Security credentials.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the credentials.")]


@app.command(epilog=examples("k8sdds security init credentials --subscribers 4 --days 30"))
def init(
    folder: Folder,
    publishers: Annotated[int, typer.Option(min=1, max=100, help="Number of publishers: pub0, pub1, …")] = 1,
    subscribers: Annotated[
        int, typer.Option(min=1, max=100, help="Number of subscribers: sub0, sub1, …")
    ] = 1,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Validity in days.")] = 365,
    key: Annotated[Literal["ec", "rsa"], typer.Option(help="Key type: EC P-256 or RSA 2048.")] = "ec",
    as_json: Json = False,
) -> None:
    """Create two certificate authorities, credentials per participant, and governance files for all levels.

    Campaigns do not need this: they create their own credentials and keep no private key.
    """
    from k8sdds.model.trial import participants
    from k8sdds.perftest import command
    from k8sdds.security import directory

    members = participants(publishers, subscribers)
    facts = directory.init(folder, members, days, key, range(command.DOMAINS.stop))
    if as_json:
        print_text(json.dumps(facts, indent=1))
        return
    console().print(
        f"Created {folder}: {len(members)} participants, valid until {facts['not_after']}.\n"
        "Private keys of the participants: DIR/PARTICIPANT/key.pem. Private keys of the authorities:"
        f" DIR/{directory.AUTHORITY_KEYS}; do not copy them to any node.",
        highlight=False, markup=False,
    )  # fmt: skip
    print_step(f"Inspect the credentials: k8sdds security show {folder}")


@app.command(epilog=examples("k8sdds security show credentials"))
def show(folder: Folder, as_json: Json = False) -> None:
    """Show participants, permissions, expiry dates and fingerprints. Never shows a private key."""
    from rich.table import Table

    from k8sdds.security import directory

    facts = directory.show(folder)
    if as_json:
        print_text(json.dumps(facts, indent=1))
        return
    out = console()
    out.print(f"identity CA     sha256 {facts['identity_ca_sha256']}", highlight=False, soft_wrap=True)
    out.print(f"permissions CA  sha256 {facts['permissions_ca_sha256']}", highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("participant", "subject", "until", "publishes", "subscribes", "sha256"):
        table.add_column(column, overflow="fold")
    for name, participant in facts["participants"].items():
        table.add_row(
            name, participant["subject"], participant["not_after"][:10], ", ".join(participant["publish"]),
            ", ".join(participant["subscribe"]), participant["certificate_sha256"][:16] + "…",
        )  # fmt: skip
    out.print(table)
    out.print(f"governance: {', '.join(facts['levels'])}", highlight=False)


@app.command(epilog=examples("k8sdds security check credentials"))
def check(folder: Folder, as_json: Json = False) -> None:
    """Verify certificates, keys, signatures and expiry dates as a middleware would."""
    from k8sdds.security import directory

    findings = directory.check(folder)
    if as_json:
        print_text(
            json.dumps(
                [
                    {"subject": finding.subject, "ok": finding.ok, "says": finding.message}
                    for finding in findings
                ],
                indent=1,
            )
        )
    else:
        for finding in findings:
            sign = "ok  " if finding.ok else "BAD "
            console().print(f"{sign} {finding.subject}: {finding.message}", highlight=False, markup=False)
    bad = [finding for finding in findings if not finding.ok]
    if bad:
        raise InputError(
            f"{len(bad)} of {len(findings)} checks failed: "
            + "; ".join(f"{finding.subject}: {finding.message}" for finding in bad[:3]),
            "create new credentials: k8sdds security init NEW-DIR",
        )


@app.command(epilog=examples("k8sdds security levels"))
def levels(as_json: Json = False) -> None:
    """List the protection levels that experiments can use."""
    from k8sdds.security import levels as protection_levels

    rows = {}
    for name in protection_levels.names():
        protection = protection_levels.load(name)
        rows[name] = protection.describe() if protection else "no DDS Security"
    if as_json:
        print_text(json.dumps(rows, indent=1))
        return
    for name, description in rows.items():
        console().print(f"{name:<32} {description}", highlight=False, markup=False)
