"""`security`: credentials for DDS Security, and the levels of protection."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from k8sdds.cli.options import Json
from k8sdds.cli.terminal import console, say
from k8sdds.system.errors import InputError

app = typer.Typer(help="Credentials for DDS Security: made, shown, checked.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the credentials.")]


@app.command()
def init(
    folder: Folder,
    publishers: Annotated[int, typer.Option(min=1, max=100, help="Participants pub0, pub1, …")] = 1,
    subscribers: Annotated[int, typer.Option(min=1, max=100, help="Participants sub0, sub1, …")] = 1,
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long they hold.")] = 365,
    key: Annotated[Literal["ec", "rsa"], typer.Option(help="EC P-256, or RSA 2048.")] = "ec",
    as_json: Json = False,
) -> None:
    """Make two authorities, credentials for each participant, and the governance of every level.

    Campaigns need none of this: they make credentials of their own, and keep no key.
    """
    from k8sdds.model.trial import participants
    from k8sdds.perftest import command
    from k8sdds.security import directory

    members = participants(publishers, subscribers)
    facts = directory.init(folder, members, days, key, range(command.DOMAINS.stop))
    if as_json:
        say(json.dumps(facts, indent=1))
        return
    console().print(
        f"Made {folder}: {len(members)} participants, valid until {facts['not_after']}.\n"
        "Private keys: DIR/PARTICIPANT/key.pem, and those of the authorities in"
        f" DIR/{directory.AUTHORITY_KEYS}, which belong on no node.\n"
        f"MachineSurvey at it: k8sdds security show {folder}",
        highlight=False, markup=False,
    )  # fmt: skip


@app.command()
def show(folder: Folder, as_json: Json = False) -> None:
    """Show who may do what until when, and the fingerprints. Never a key."""
    from rich.table import Table

    from k8sdds.security import directory

    facts = directory.show(folder)
    if as_json:
        say(json.dumps(facts, indent=1))
        return
    out = console()
    out.print(f"identity CA     sha256 {facts['identity_ca_sha256']}", highlight=False, soft_wrap=True)
    out.print(f"permissions CA  sha256 {facts['permissions_ca_sha256']}", highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("participant", "subject", "until", "publishes", "subscribes", "sha256"):
        table.add_column(column, overflow="fold")
    for name, one in facts["participants"].items():
        table.add_row(
            name, one["subject"], one["not_after"][:10], ", ".join(one["publish"]),
            ", ".join(one["subscribe"]), one["certificate_sha256"][:16] + "…",
        )  # fmt: skip
    out.print(table)
    out.print(f"governance: {', '.join(facts['levels'])}", highlight=False)


@app.command()
def check(folder: Folder, as_json: Json = False) -> None:
    """Check certificates, keys, signatures and expiry, as a middleware would."""
    from k8sdds.security import directory

    findings = directory.check(folder)
    if as_json:
        say(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        for finding in findings:
            sign = "ok  " if finding.ok else "BAD "
            console().print(f"{sign} {finding.subject}: {finding.says}", highlight=False, markup=False)
    bad = [finding for finding in findings if not finding.ok]
    if bad:
        raise InputError(
            f"{len(bad)} of {len(findings)} checks failed: "
            + "; ".join(f"{finding.subject}: {finding.says}" for finding in bad[:3]),
            "make new credentials: k8sdds security init NEW-DIR",
        )


@app.command()
def levels(as_json: Json = False) -> None:
    """List the levels of protection that experiments may name."""
    from k8sdds.security import levels as known

    rows = {}
    for name in known.names():
        protection = known.load(name)
        rows[name] = protection.describe() if protection else "no DDS Security"
    if as_json:
        say(json.dumps(rows, indent=1))
        return
    for name, words in rows.items():
        console().print(f"{name:<32} {words}", highlight=False, markup=False)
