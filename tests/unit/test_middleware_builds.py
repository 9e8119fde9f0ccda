"""A middleware that is not built is reported with the reason that CMake recorded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k8sdds.bundle import native
from k8sdds.cli import machine
from k8sdds.middleware import MIDDLEWARES
from k8sdds.setup import native as setup_native
from k8sdds.system.errors import PrerequisiteError

REASON = "not built: CMake found neither fastdds 3 nor fastrtps 2 (Debian: libfastdds-dev)"


@pytest.fixture
def without_fastdds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of native programs as the build leaves it without Fast DDS."""
    for name in setup_native.PROGRAMS:
        (tmp_path / name).touch(0o755)
    for name in ("raw", "cyclonedds"):
        (tmp_path / f"libk8sdds-perftest-{name}.so").touch()
    record = {"raw": "UDP sockets", "cyclonedds": "Cyclone DDS 0.10.2", "fastdds": REASON}
    (tmp_path / "middlewares.json").write_text(json.dumps(record))
    monkeypatch.setenv("K8SDDS_LIBEXEC", str(tmp_path))
    return tmp_path


def test_setup_builds_only_backends(without_fastdds: Path) -> None:
    assert setup_native.missing_middlewares() == ["fastdds"]
    (without_fastdds / "libk8sdds-perftest-fastdds.so").touch()
    assert setup_native.missing_middlewares() == []


def test_doctor_lists_each_middleware(without_fastdds: Path) -> None:
    found = {row.subject.removeprefix("middleware "): row for row in machine._middlewares(without_fastdds)}
    assert list(found) == list(MIDDLEWARES)
    assert (found["cyclonedds"].ok, found["cyclonedds"].message) == (True, "Cyclone DDS 0.10.2")
    assert not found["fastdds"].ok
    assert found["fastdds"].message == f"middleware 'fastdds' is {REASON}"
    assert found["fastdds"].remedy
    assert not found["fastdds"].required
    assert found["cyclonedds"].required


def test_images_are_refused_without_a_middleware(
    without_fastdds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "SERVER", "true")
    with pytest.raises(PrerequisiteError, match="every middleware, but fastdds is not built: CMake found"):
        native.programs("perftest", native.HOST_ARCH, print)


@pytest.mark.parametrize("record", [None, "", '{"raw": "UDP'])
def test_programs_without_a_complete_record_are_accepted(without_fastdds: Path, record: str | None) -> None:
    (without_fastdds / "middlewares.json").unlink()
    if record is not None:
        (without_fastdds / "middlewares.json").write_text(record)
    found = {row.subject: row for row in machine._middlewares(without_fastdds)}
    assert found["middleware cyclonedds"].ok
    assert (
        found["middleware fastdds"].message
        == "middleware 'fastdds' is not built here (built: cyclonedds, raw)"
    )
