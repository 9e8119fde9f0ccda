"""Describe what an artifact contains: its author's metadata and the packed runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from k8sdds.claims import PAPER
from k8sdds.results.run_folder import RunFolder


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
    """Files in recommendations/NAME/; empty: the run did not measure an application."""
