"""Faults of the environment become errors with a path, a remedy and an exit code, and leave files whole or absent."""

from __future__ import annotations

import errno
import os
import pty
import resource
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from unittest.mock import Mock

import pytest

from k8sdds.results import tidy
from k8sdds.results.run_folder import RunFolder
from k8sdds.system import faults, files
from k8sdds.system.errors import Aborted, InputError, PrerequisiteError
from k8sdds.testbeds.lab import records
from tests import run_folders
from tests.conftest import K8SDDS

LIMIT = 5000


@pytest.fixture
def small_files() -> object:
    """Limit the size of files, so that writes fail in the middle of a file as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("number", [*faults.PATH_REMEDIES, *faults.RESOURCE_REMEDIES])
def test_every_error_number_has_a_path_a_reason_and_a_remedy(number: int) -> None:
    fault = faults.explain(OSError(number, os.strerror(number), "/data/run/trials.jsonl"))
    assert fault is not None
    assert type(fault) is (InputError if number in faults.PATH_REMEDIES else PrerequisiteError)
    assert fault.message == f"/data/run/trials.jsonl: {os.strerror(number)}"
    assert fault.remedy and "{" not in fault.remedy


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("can't start new thread"),
        ImportError("libfoo.so: failed to map segment from shared object"),
        subprocess.TimeoutExpired(["ip", "link"], 60),
        OSError("an error of a library, without a number"),
    ],
)
def test_other_exceptions_of_an_exhausted_machine_are_prerequisites(error: Exception) -> None:
    fault = faults.explain(error)
    assert isinstance(fault, PrerequisiteError) and fault.message and fault.remedy


def test_the_advice_of_a_package_about_its_installation_is_left_out() -> None:
    fault = faults.explain(
        ImportError(
            "PLEASE READ THIS\n\nOriginal error was: libblas.so: failed to map segment from shared object"
        )
    )
    assert fault is not None
    assert fault.message == "Original error was: libblas.so: failed to map segment from shared object"


def test_a_limit_of_memory_that_would_crash_the_analysis_is_reported_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (100 << 20, resource.RLIM_INFINITY))
    with pytest.raises(PrerequisiteError, match="the limit is 100 MiB, and the analysis needs 1024 MiB"):
        tidy.frame(run_folders.empty(tmp_path / "run"))


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


def test_a_missing_program_is_a_prerequisite_and_a_missing_file_is_input() -> None:
    with pytest.raises(FileNotFoundError) as program:
        subprocess.run(["no-such-program"])
    with pytest.raises(FileNotFoundError) as file:
        Path("no-such-file").read_bytes()
    missing = faults.explain(program.value)
    assert isinstance(missing, PrerequisiteError) and "no-such-program is not installed" in missing.message
    assert isinstance(faults.explain(file.value), InputError)


@pytest.mark.usefixtures("small_files")
def test_an_append_that_fails_leaves_the_previous_content_and_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    files.append(path, b"a" * 4000)
    with pytest.raises(OSError, match="trials") as raised:
        files.append(path, b"b" * 4000)
    assert raised.value.errno == errno.EFBIG
    assert path.read_bytes() == b"a" * 4000
    files.append(path, b"c" * 1000)
    assert path.stat().st_size == 5000


@pytest.mark.usefixtures("small_files")
def test_a_file_that_cannot_be_written_keeps_its_content_and_the_error_names_it(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text("old")
    with pytest.raises(OSError, match=r"record\.json'"):
        files.write_atomically(path, "x" * (LIMIT + 1))
    with (
        pytest.raises(OSError, match=r"record\.json'"),
        files.replacing(path) as unfinished,
        zipfile.ZipFile(unfinished, "w") as archive,
    ):
        archive.writestr("a", os.urandom(LIMIT + 1))
    with pytest.raises(OSError, match=tmp_path.name):
        files.require_room(tmp_path, LIMIT + 1)
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"]
    assert path.read_text() == "old"


def test_an_exclusive_write_never_replaces_a_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.json"
    files.write_atomically(path, "first", exclusive=True)
    with pytest.raises(FileExistsError):
        files.write_atomically(path, "second", exclusive=True)
    assert path.read_text() == "first" and list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("exists", [False, True])
def test_a_run_folder_that_cannot_be_written_leaves_nothing(tmp_path: Path, exists: bool) -> None:
    path = tmp_path / "run"
    if exists:
        path.mkdir()
    with pytest.raises(PrerequisiteError, match=r"cannot write .*run"):
        RunFolder.create(path, {"schema": 2}, "name: e\n", {"qos/a.xml": b"x" * (LIMIT + 1)})
    assert path.exists() == exists and (not exists or not any(path.iterdir()))


def test_clean_finds_what_a_killed_writer_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(tmp_path))
    names = ("empty.json", "half.json.0a1b2c3d.new")
    for name in names:
        (tmp_path / name).write_text("" if name == "empty.json" else "{")
        os.utime(tmp_path / name, (time.time() - 60, time.time() - 60))
    (tmp_path / "now.json").touch()
    (tmp_path / "testbed.json").write_text('{"testbed": "lab"}')
    os.utime(tmp_path / "testbed.json", (0, 0))
    assert sorted(path.name for path in records.unfinished()) == sorted(names)


def outcome(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env={**os.environ, "K8SDDS": str(K8SDDS)}
    )


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("$K8SDDS list --json | true; exit ${PIPESTATUS[0]}", 0, ""),
        ("$K8SDDS list --json >/dev/full", 3, "cannot write the output: No space left on device"),
        ("$K8SDDS list --json >&-", 0, ""),
        ("$K8SDDS show no-such-experiment 2>/dev/full", 2, ""),
    ],
)
def test_output_that_cannot_be_written_stops_no_command(command: str, code: int, message: str) -> None:
    done = outcome(command)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr and "internal" not in done.stderr and "Exception" not in done.stderr


def test_a_closed_terminal_stops_no_command() -> None:
    master, terminal = pty.openpty()
    process = subprocess.Popen([K8SDDS, "list"], stdout=terminal, stderr=terminal)
    os.close(terminal)
    os.close(master)
    assert process.wait(60) == 0


def test_a_stream_that_fails_discards_its_buffer_and_keeps_the_error() -> None:
    code = (
        "import sys, os; from k8sdds.cli import streams; streams.protect();"
        "print('x' * 100_000, end='');"
        "lost = streams.lost_output(); print('more'); os.write(2, str(lost.message).encode())"
    )
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "cannot write the output: No space left on device")


def test_a_fault_of_a_campaign_names_resume(tmp_path: Path) -> None:
    from k8sdds.cli.run import _ending

    run = RunFolder.create(tmp_path / "a run", {"schema": 2}, "name: e\n")
    with pytest.raises(Aborted, match="No space left") as raised, _ending(run.path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(run.path / "trials.jsonl"))
    assert f"continue: k8sdds run --resume '{run.path}'" in raised.value.remedy
    with pytest.raises(OSError, match="No space left"), _ending(tmp_path / "not started"):
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
