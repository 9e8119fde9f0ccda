"""Reports and comparisons name the software of the measured networks, and the installed network of each block."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k8sdds.analysis.comparison import Side, compare_all
from k8sdds.report import comparison as shown
from k8sdds.report import content, fact_tables, html
from k8sdds.results import tidy
from k8sdds.results.run_folder import RunFolder
from tests.run_folders import Plan, make, rewritten, with_campaign

OLD = "ghcr.io/flannel-io/flannel:v0.28.3@sha256:" + "a" * 64
NEW = "ghcr.io/flannel-io/flannel:v0.28.4@sha256:" + "b" * 64
PROXY = "registry.k8s.io/kube-proxy:v1.36.3@sha256:" + "c" * 64
AGENT = "k8sdds-network/flannel flanneld"


def run_with(path: Path, flannel: str, **facts: Any) -> RunFolder:
    """Create a run folder whose trials in odd blocks were measured with another installed network."""
    run = make(
        path, Plan(networks=("host", "flannel-vxlan"), payloads=(1024,), repetitions=4, histograms=False)
    )
    software = {AGENT: flannel, "kube-system/kube-proxy kube-proxy": PROXY}
    rewritten(run, (
        row | {"installed_network": ("flannel-vxlan", "kube-router")[row["block"] % 2], "network_software": software}
        for row in run.attempts()
    ))  # fmt: skip
    networks = {"flannel-vxlan": {"name": "flannel-vxlan", "encryption": ""} | facts, "host": {}}
    return with_campaign(run, networks=networks)


def page(run: RunFolder) -> str:
    return html.write(content.read(run), [], run.path / "report.html").read_text()


def test_the_report_lists_versions_and_the_installed_network_of_each_block(tmp_path: Path) -> None:
    text = page(run_with(tmp_path / "run", NEW))
    assert all(f"{image[:-56]}…" in text for image in (NEW, PROXY)) and AGENT in text
    assert "flannel-vxlan (blocks 0, 2); kube-router (blocks 1, 3)" in text


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"encryption": ""}, "none"),
        ({"encryption": "WireGuard"}, "WireGuard"),
        ({"encryption": None}, "unknown"),
        # Earlier versions recorded that of networks that others installed as none.
        ({"name": "unknown", "encryption": ""}, "unknown"),
        ({"name": "cilium-geneve", "encryption": ""}, "unknown"),
    ],
)
def test_an_unknown_encryption_is_not_none(tmp_path: Path, facts: dict[str, Any], expected: str) -> None:
    table, *_ = fact_tables.networks(content.read(run_with(tmp_path / "run", NEW, **facts)))
    column = table.heads.index("encryption")
    assert {row[0].text: row[column].text for row in table.rows}["flannel-vxlan"] == expected


def side(run: RunFolder) -> Side:
    return Side(run.path.name, str(run.path), tidy.best(tidy.rows(run)), "host")


def test_a_comparison_states_which_versions_differ(tmp_path: Path) -> None:
    a, b = (side(run_with(tmp_path / name, image)) for name, image in (("a", OLD), ("b", NEW)))
    (found,) = compare_all((a, b))
    assert found.software["flannel-vxlan"][AGENT] == (OLD, NEW)
    assert shown.findings((a, b), [found]).data["software"]["flannel-vxlan"][AGENT] == (OLD, NEW)
    notes = shown.notes(found)
    assert f"flannel-vxlan: {AGENT} is {OLD} in A and {NEW} in B." in notes
    assert not any("kube-proxy is" in note for note in notes)
