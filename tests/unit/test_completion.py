"""Shell completion, with the call that bash makes."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.conftest import K8SDDS


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("k8sdds sho", {"show"}),
        ("k8sdds run multicast-1", {"multicast-12sub"}),
        ("k8sdds show best", {"best-effort"}),
        ("k8sdds run quickstart --network kube", {"kube-router"}),
        ("k8sdds run quickstart --set payl", {"payload_bytes="}),
        ("k8sdds lab gr", {"graph"}),
        ("k8sdds run no-such", set()),
    ],
)
def test_completion_offers_names(line: str, offered: set[str]) -> None:
    args = line.split()
    done = subprocess.run(
        [K8SDDS],
        env={
            **os.environ,
            "_K8SDDS_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(args) - 1),
        },
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, set(done.stdout.split()), done.stderr) == (0, offered, "")
