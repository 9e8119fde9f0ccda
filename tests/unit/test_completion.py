"""Shell completion, with the environment of the call that bash makes."""

from __future__ import annotations

import pytest

from tests.conftest import Command


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
def test_completion_offers_names(
    k8sdds: Command, monkeypatch: pytest.MonkeyPatch, line: str, offered: set[str]
) -> None:
    monkeypatch.setenv("_K8SDDS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    done = k8sdds()
    assert (done.returncode, set(done.stdout.split()), done.stderr) == (0, offered, "")
