"""Faults of the environment become errors with a path, a remedy and an exit code, and leave files whole or absent."""

from __future__ import annotations

import errno
import os
import pty
import resource
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from k8sdds.results import tidy
from k8sdds.results.run_folder import RunFolder
from k8sdds.system import faults
from k8sdds.system.errors import Aborted, InputError, PrerequisiteError
from k8sdds.testbeds.lab import records
from tests import run_folders
from tests.commands import K8SDDS


@pytest.mark.parametrize("number", [*faults.PATH_REMEDIES, *faults.RESOURCE_REMEDIES])
def test_every_error_number_has_a_path_a_reason_and_a_remedy(number: int) -> None:
    fault = faults.explain(OSError(number, os.strerror(number), "/data/run/trials.jsonl"))
    assert fault is not None
    assert type(fault) is (InputError if number in faults.PATH_REMEDIES else PrerequisiteError)
    assert fault.message == f"/data/run/trials.jsonl: {os.strerror(number)}"
    assert fault.remedy and "{" not in fault.remedy


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), ""),
        (RuntimeError("can't start new thread"), ""),
        # The advice of a package about its installation is left out.
        (ImportError("READ THIS\n\nOriginal error was: a.so: failed to map segment from shared object"),
         "Original error was: a.so: failed to map segment from shared object"),
        (subprocess.TimeoutExpired(["ip", "link"], 60), ""),
        (OSError("an error of a library, without a number"), ""),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "no-such-file"), None),
    ],
)  # fmt: skip
def test_other_exceptions_of_an_exhausted_machine_are_prerequisites(
    error: Exception, message: str | None
) -> None:
    fault = faults.explain(error)
    assert isinstance(fault, InputError if message is None else PrerequisiteError)
    assert fault.message and fault.remedy and message in (None, "", fault.message)


def test_a_missing_program_is_a_prerequisite() -> None:
    with pytest.raises(FileNotFoundError) as program:
        subprocess.run(["no-such-program"])
    missing = faults.explain(program.value)
    assert isinstance(missing, PrerequisiteError) and "no-such-program is not installed" in missing.message


def test_a_limit_of_memory_that_would_crash_the_analysis_is_reported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100 << 20, resource.RLIM_INFINITY))
    with pytest.raises(PrerequisiteError, match="the limit is 100 MiB, and the analysis needs 1024 MiB"):
        tidy.rows(run_folders.empty(tmp_path / "run"))


@pytest.mark.parametrize(
    "error",
    [OSError(errno.EBADF, "Bad file descriptor"), ValueError("x"), RuntimeError("x"), ImportError("x")],
)
def test_defects_are_no_faults(error: Exception) -> None:
    assert faults.explain(error) is None


def test_a_consequence_of_a_full_disk_is_a_fault_and_a_defect_during_the_handling_of_a_missing_file_is_none() -> (
    None
):
    def raised(number: int) -> Exception:
        try:
            try:
                raise OSError(number, os.strerror(number), "archive.zip")
            except OSError:
                raise ValueError("cannot close the ZIP file while a writing handle is open")  # noqa: B904
        except ValueError as error:
            return error

    fault = faults.explain(raised(errno.ENOSPC))
    assert isinstance(fault, PrerequisiteError) and "archive.zip" in fault.message
    assert faults.explain(raised(errno.ENOENT)) is None


def test_an_explained_error_keeps_its_own_remedy_for_paths_and_space_only() -> None:
    def end(number: int) -> str:
        errors = (InputError, PrerequisiteError)
        with pytest.raises(errors) as raised, faults.explained("cannot write out", "use another --output"):
            raise OSError(number, os.strerror(number))
        assert raised.value.message == f"cannot write out: {os.strerror(number)}"
        assert faults.explain(raised.value) is raised.value
        return raised.value.remedy

    assert end(errno.EACCES) == end(errno.ENOSPC) == "use another --output"
    assert "ulimit -n" in end(errno.EMFILE)


def test_clean_finds_what_a_killed_writer_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(tmp_path))
    names = ("empty.json", "half.json.0a1b2c3d.new")
    labs = records.folder()
    for name in names:
        (labs / name).write_text("" if name == "empty.json" else "{")
        os.utime(labs / name, (time.time() - 60, time.time() - 60))
    (labs / "now.json").touch()
    (tmp_path / "testbed.json").write_text('{"testbed": "lab"}')
    os.utime(tmp_path / "testbed.json", (0, 0))
    assert sorted(path.name for path in records.unfinished()) == sorted(names)


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("$K8SDDS testbed --json | true; exit ${PIPESTATUS[0]}", 0, ""),
        ("$K8SDDS testbed --json >/dev/full", 3, "cannot write the output: No space left on device"),
        pytest.param("$K8SDDS testbed --json >&-", 0, "", marks=pytest.mark.long),
        pytest.param("$K8SDDS show no-such-experiment 2>/dev/full", 2, "", marks=pytest.mark.long),
    ],
)
def test_output_that_cannot_be_written_stops_no_command(command: str, code: int, message: str) -> None:
    environment = {**os.environ, "K8SDDS": str(K8SDDS)}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr and "internal" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.long
def test_a_closed_terminal_stops_no_command() -> None:
    master, terminal = pty.openpty()
    process = subprocess.Popen([K8SDDS, "list"], stdout=terminal, stderr=terminal)
    os.close(terminal)
    os.close(master)
    assert process.wait(60) == 0


def test_a_stream_that_fails_discards_its_buffer_and_keeps_the_error() -> None:
    code = (
        "import sys, os; from k8sdds.cli import main; main.protect();"
        "print('x' * 100_000, end='');"
        "lost = main.lost_output(); print('more'); os.write(2, str(lost.message).encode())"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "cannot write the output: No space left on device")


def test_a_fault_of_a_campaign_names_resume(tmp_path: Path) -> None:
    from k8sdds.cli.run import _kept, ending

    run = RunFolder.create(tmp_path / "a run", {"schema": 2}, "name: e\n")
    with pytest.raises(Aborted, match="No space left") as raised, ending(lambda: _kept(run.path, "")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(run.path / "trials.jsonl"))
    assert f"continue: k8sdds run --resume '{run.path}'" in raised.value.remedy
    with pytest.raises(OSError, match="No space left"), ending(lambda: _kept(tmp_path / "not started", "")):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("record", "source"),
    [
        ('{"url": "file:///opt/k8sdds.whl", "archive_info": {}}', " @ file:///opt/k8sdds.whl"),
        ('{"url": "https://a.example/b", "vcs_info": {"vcs": "git"}}', " @ git+https://a.example/b"),
        (None, ""),
    ],
)
def test_an_extra_comes_from_where_k8sdds_was_installed(
    monkeypatch: pytest.MonkeyPatch, record: str | None, source: str
) -> None:
    monkeypatch.setattr(faults, "CHECKOUT", None)
    monkeypatch.setattr(faults, "distribution", lambda name: Mock(read_text=lambda file: record))
    assert faults.missing_extra("kubernetes").remedy == f"run: pip install 'k8sdds[cluster]{source}'"
