"""The facts of this machine, from supervisors that report, fail and hang."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.lab import facts

Supervisor = Callable[[str], Path]
"""Installs a script as the supervisor, and returns the file that it extends by a line whenever it is started."""


@pytest.fixture
def supervisor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    starts, program = tmp_path / "starts", tmp_path / "k8sdds-supervisor"

    def install(script: str) -> Path:
        program.write_text(f'#!/bin/sh\necho "$@" >> {starts}\n{script}\n')
        program.chmod(0o755)
        return starts

    monkeypatch.setenv("K8SDDS_LIBEXEC", str(tmp_path))
    facts._reported.cache_clear()
    yield install
    facts._reported.cache_clear()


def test_the_supervisor_is_asked_once(supervisor: Supervisor) -> None:
    starts = supervisor("""echo '{"kernel": "6.1.0", "boot_id": "b", "separate_interrupts": true}'""")
    assert {facts.machine()[key] for key in ("kernel", "boot_id")} == {"6.1.0", "b"}
    assert facts.separate_interrupts() is True
    assert starts.read_text() == "facts\n"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo cannot read /proc/cpuinfo >&2; exit 3", "cannot read /proc/cpuinfo"),
        ("exit 3", "exit code 3"),
        ("exec sleep 60", "it did not end within 0.2 s"),
        ("echo '{'", "its output: not valid JSON"),
    ],
)
def test_facts_are_never_silently_missing(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    if "sleep" in script:
        monkeypatch.setattr(facts, "REPORT_TIMEOUT_S", 0.2)
    supervisor(script)
    with pytest.raises(PrerequisiteError, match=reason) as failed:
        facts.machine()
    assert failed.value.message.startswith("k8sdds-supervisor cannot report the facts of this machine: ")
    assert "k8sdds setup" in failed.value.remedy


def test_without_a_supervisor_the_facts_are_unknown(supervisor: Supervisor) -> None:
    assert facts.machine()["kernel"] is facts.separate_interrupts() is None
