"""`k8sdds artifact`: pack run folders into an artifact, and verify artifacts."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from k8sdds.cli.commands import Commands
from k8sdds.cli.options import ClaimsFile, DryRun
from k8sdds.cli.output import DataOutput, Json
from k8sdds.cli.terminal import print_line, print_text
from k8sdds.report.export import to_json
from k8sdds.system.errors import InputError

if TYPE_CHECKING:
    from k8sdds.artifact import PackedArtifact

app = Commands(help="Pack run folders into an artifact for publication, and verify artifacts.")

MAX_SHOWN = 50
"""Largest number of files that the text output lists; `--json` lists all."""


@app.add("k8sdds artifact pack runs/mine --output mine.zip --license CC-BY-4.0")
def pack(
    runs: Annotated[list[Path], "RUN: Run folders."],
    output: Annotated[Path, "--output -o FILE: ZIP file to write."],
    title: Annotated[str | None, "--title TEXT: Title of the artifact. Default: Results of k8sdds."] = None,
    license_: Annotated[str | None, "--license SPDX-ID: License of the data, such as CC-BY-4.0."] = None,
    author: Annotated[list[str] | None, "--author NAME: An author (repeatable)."] = None,
    claims: ClaimsFile = "k8sdds-paper",
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Pack run folders into one file that others can verify, analyze and reproduce.

    Contains raw data, resolved experiments, versions, expected tables,
    checksums, RO-Crate metadata and a README for evaluators.
    The same content always gives the same bytes.

    Files that contain a private key (PEM, DER, PKCS#12, OpenSSH), a WireGuard or IPsec key,
    the client key of a kubeconfig or a JSON Web Token are left out, also if it is encoded in
    base64 or compressed with gzip, bzip2 or xz, up to 3 layers deep. So are files in other
    archive formats, links, and files of more than 1 GiB. Passwords are not detected.
    """
    from k8sdds import artifact

    description = artifact.Description(license=license_, authors=tuple(author or ()), claims=claims)
    if title:
        description = dataclasses.replace(description, title=title)
    with TemporaryDirectory() as scratch:
        target = output
        if dry_run:
            artifact.check_output(output)
            target = Path(scratch, output.name)
        packed = dataclasses.replace(artifact.pack(runs, target, description), path=output)
    if as_json:
        print_text(to_json(dataclasses.asdict(packed)))
    else:
        _show(packed, "would write " if dry_run else "", license_)


def _show(packed: PackedArtifact, verb: str, license_: str | None) -> None:
    print_line(f"{verb}{packed.path}: {packed.files} files, {packed.size_bytes / 1e6:.1f} MB")
    print_line(f"content id: {packed.content_id}")
    for path, reason in packed.left_out[:MAX_SHOWN]:
        print_line(f"left out: {path}: {reason}")
    if len(packed.left_out) > MAX_SHOWN:
        print_line(f"… and {len(packed.left_out) - MAX_SHOWN} more; the artifact's README.md lists all")
    if license_ is None:
        print_line("Warning: without a license, others may not use the data. Add --license.")


@app.add("k8sdds artifact verify mine.zip")
def verify(
    file: Annotated[Path, "FILE: The ZIP file of an artifact, or the unpacked folder."],
    expect: Annotated[str | None, "--expect ID: Content id that the authors published."] = None,
    *,
    out: DataOutput,
) -> None:
    """Verify an artifact: report changed, missing and added files.

    Nothing is unpacked, and memory does not depend on the size of the content.
    An archive is intact only if every byte is the one that was packed.
    """
    from k8sdds import artifact

    verified = artifact.verify(file, expect)
    intact = f"{file} is intact: {verified.files} files, content id {verified.content_id}"
    if not out.is_text:
        out.print(dataclasses.asdict(verified))
    elif not verified.findings:
        print_line(intact)
        if verified.format == artifact.UNSEALED_FORMAT:
            print_line(
                "Its format is 1, of an older k8sdds: unused bits of its compressed data are not checked."
            )
    if not verified.findings:
        return
    lines = [str(finding) for finding in verified.findings[:MAX_SHOWN]]
    if len(verified.findings) > MAX_SHOWN:
        lines.append(f"… and {len(verified.findings) - MAX_SHOWN} more; list all: --json")
    raise InputError(
        "\n".join([f"{file} is not intact:", *lines]), "download it again from where it was published"
    )
