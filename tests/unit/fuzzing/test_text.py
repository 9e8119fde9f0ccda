"""Text from files is printed and drawn literally, and files are read within limits."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from k8sdds.system import reading
from tests import run_folders
from tests.conftest import Command

HOSTILE = "a$\\frac$ [/b] <script>\x1b[31m\ud800"


def test_a_hostile_label_is_text_everywhere(k8sdds: Command, tmp_path: Path) -> None:
    run = run_folders.single(tmp_path / "run [:-1")
    lines = [json.loads(line) for line in (run.path / "trials.jsonl").read_text().splitlines()]
    for attempt in lines:
        if attempt["network"] != "host":
            attempt["network_label"] = HOSTILE + "x" * 120
    (run.path / "trials.jsonl").write_text("".join(f"{json.dumps(attempt)}\n" for attempt in lines))
    done = k8sdds("report", str(run.path))
    assert done.returncode == 0, done.stderr
    # A long label continues in the next line.
    assert "[/b] <script>" in " ".join(done.stdout.split()) and "\x1b[31m" not in done.stdout
    page = (run.path / "report" / "report.html").read_text()
    assert "[/b] &lt;script&gt;" in page and "[/b] <script>" not in page
    figures = list((run.path / "report" / "figures").glob("*.svg"))
    assert figures
    for figure in figures:
        ElementTree.parse(figure)


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        ({"sent": 10**30}, "sent: 1.00e+30 is not possible"),
        ({"throughput_mbps": 10**400}, "throughput_mbps: 1.00e+400 is not possible"),
        ({"throughput_mbps": -5}, "throughput_mbps: -5 is not possible"),
        ({"throughput_mbps": 461_631.0}, "throughput_mbps: 461631.0 is not possible"),
        ({"link": {"rate_mbit": "fast"}}, "link.rate_mbit: expected a number"),
        ({"link": "fast"}, "link: expected keys with values"),
        ({"link_bytes": "many"}, "link_bytes: expected keys with values"),
        ({"node_links": "fast"}, "node_links: expected keys with values"),
        ({"nodes_cpu": {"node0": {"participants": 5.0}}}, "nodes_cpu.node0.shared: this key is missing"),
    ],
)
def test_an_impossible_record_is_invalid_and_has_no_values(
    tmp_path: Path, attempt: dict, reason: str
) -> None:
    run = run_folders.empty(tmp_path / "run")
    usual = {"valid": True, "trial_id": "a", "latency_p90_us": 3.0}
    (run.path / "trials.jsonl").write_text(json.dumps(usual | attempt) + "\n")
    (read,) = run.attempts()
    assert read["valid"] is False and read["reason"].startswith(f"damaged: trials.jsonl:1: {reason}")
    assert "throughput_mbps" not in read and "latency_p90_us" not in read and read["trial_id"] == "a"


def test_what_is_not_a_small_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(reading.UnreadableError, match="is a device or a socket"):
        reading.data("/dev/zero")
    with pytest.raises(IsADirectoryError):
        reading.data(tmp_path)
    (tmp_path / "large").write_bytes(bytes(101))
    with pytest.raises(reading.UnreadableError, match="larger than 100 bytes"):
        reading.data(tmp_path / "large", 100)
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setattr(reading, "WAIT_S", 0.01)
    with pytest.raises(reading.UnreadableError, match="nothing was written to this pipe"):
        reading.data(tmp_path / "pipe")


def test_a_title_with_brackets_is_shown_literally(k8sdds: Command, tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text('name: e\ntitle: "a [/b] c"\nsweeps: [{networks: host}]\n')
    assert k8sdds("show", "./e.yaml").stdout.splitlines()[0] == "e: a [/b] c"
