"""Describe what an artifact contains: its author's metadata, the packed runs, and their software and machines."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from importlib import metadata

from k8sdds.claims import PAPER
from k8sdds.results.run_folder import RunFolder

_NAME = re.compile(r"^[A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Description:
    """Metadata of an artifact that its author provides."""

    title: str = "Results of k8sdds"
    license: str | None = None
    """SPDX license identifier, such as CC-BY-4.0."""
    authors: tuple[str, ...] = ()
    claims: str = PAPER
    """The claims to judge with the runs: name of an installed claims file, or path of a YAML file."""


@dataclass
class PackedRun:
    """A run folder and its properties for the artifact's documents."""

    folder: RunFolder
    name: str
    campaign: str
    experiment: str
    command: str
    version: str
    perftest: str
    testbed: str
    started_at: str | None
    ended_at: str | None
    complete: bool
    trials: int
    valid: int
    minutes: float
    sums: dict[str, str] = field(default_factory=dict)
    """Checksums of the packed files, by path within the run folder."""
    size_bytes: int = 0
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Excluded paths, with the reason."""
    tables: list[str] = field(default_factory=list)
    recommendation: list[str] = field(default_factory=list)
    """Files in recommendations/NAME/; empty if the run did not measure an application."""


def python_packages() -> str:
    """Return the versions of k8sdds and of all its dependencies, in pip's constraints format."""
    versions: dict[str, str] = {}
    pending = ["k8sdds"]
    while pending:
        name = pending.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in versions:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            # The dependency is for another platform, or belongs to an extra that is not installed.
            continue
        versions[key] = package.version
        for requirement in package.requires or []:
            match = _NAME.match(requirement)
            if match and "extra ==" not in requirement:
                pending.append(match[0])
    return "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


def environment_of(run: RunFolder) -> str:
    """Return the machine, versions and networks of a campaign as JSON."""
    campaign = run.campaign
    kept = {key: campaign.get(key) for key in ("k8sdds_version", "seed", "command", "testbed")}
    kept["networks"] = run.networks
    return json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
