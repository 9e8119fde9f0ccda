"""Every fault of the environment ends in a documented error, loses no result, and leaves nothing half-written.

`environment/inject.c` makes the N-th file operation of a command fail. The tests draw N and the error number; the long
test tries every N.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import pty
import random
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from k8sdds import artifact
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.errors import EXIT_CODES, INTERNAL_ERROR
from tests import bundles
from tests.commands import K8SDDS
from tests.measuring import experiment
from tests.run_folders import Plan, make
from tests.unit.importing.logs import csv_latency

HERE = Path(__file__).parent / "environment"

OPEN, OPEN_TO_WRITE, CREATE, WRITE, REMOVE, STATUS, LIST, READ = (1 << bit for bit in range(8))
FAULTS: dict[int, int] = {
    errno.ENOSPC: CREATE | WRITE,
    errno.EDQUOT: CREATE | WRITE,
    errno.EROFS: OPEN_TO_WRITE | CREATE | REMOVE,
    errno.EACCES: OPEN | OPEN_TO_WRITE | CREATE | REMOVE | STATUS | LIST,
    errno.EIO: OPEN | OPEN_TO_WRITE | CREATE | WRITE | REMOVE | STATUS | LIST | READ,
    errno.EMFILE: OPEN | OPEN_TO_WRITE | CREATE | LIST,
    errno.ENOMEM: OPEN | OPEN_TO_WRITE | CREATE | STATUS | LIST,
}
"""Error numbers, and the operations that can fail with them (inject.c)."""

STATE = struct.Struct("q8qqiii4x")
DOCUMENTED = set(EXIT_CODES) - {INTERNAL_ERROR}

SWEEP = """\
  - networks: [host]
    test: throughput
    middleware: raw
    reliability: best-effort
    payload_bytes: [256, 1024]
"""


@dataclass(frozen=True)
class Fault:
    """An error number for the `at`-th operation that it applies to, and with `sticky` for all later ones."""

    number: int
    at: int
    sticky: bool = False

    def __str__(self) -> str:
        return f"{errno.errorcode[self.number]} at {self.at}{' and later' if self.sticky else ''}"


@dataclass(frozen=True)
class Ended:
    """How a command ended, and how many operations each error number applies to."""

    code: int
    stdout: str
    stderr: str
    operations: dict[int, int]


class Commands:
    """Runs commands in a watched folder, with faults."""

    def __init__(self, folder: Path) -> None:
        self.watched = folder / "watched"
        self._folder = folder
        self._state = folder / "fault-state"
        self._state.write_bytes(bytes(STATE.size))
        library = folder / "inject.so"
        compiler = ["cc", "-shared", "-fPIC", "-O1", "-U_FORTIFY_SOURCE", "-D_LARGEFILE64_SOURCE"]
        subprocess.run([*compiler, "-o", library, HERE / "inject.c", "-ldl"], check=True)
        self._process = subprocess.Popen(
            [sys.executable, HERE / "commands.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "LD_PRELOAD": str(library),
                "K8SDDS_FAULT_STATE": str(self._state),
                "K8SDDS_FAULT_FOLDER": str(self.watched),
                "K8SDDS_STATE_DIR": str(self.watched / "state"),
                "K8SDDS_CACHE_DIR": str(self.watched / "cache"),
                "HOME": str(folder),
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
        )
        self._read()

    def run(self, argv: Sequence[str], fault: Fault | None = None) -> Ended:
        number, at, sticky = (fault.number, fault.at, fault.sticky) if fault else (errno.EIO, 0, False)
        self._state.write_bytes(STATE.pack(0, *[0] * 8, at, number, FAULTS[number], sticky))
        output = self._folder / "command"
        request = {"argv": list(argv), "folder": str(self.watched), "output": str(output)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        code = int(self._read())
        by_kind = STATE.unpack(self._state.read_bytes())[1:9]
        self._state.write_bytes(bytes(STATE.size))
        operations = {
            number: sum(count for bit, count in enumerate(by_kind) if kinds >> bit & 1)
            for number, kinds in FAULTS.items()
        }
        texts = [Path(f"{output}.{name}").read_text(errors="replace") for name in ("out", "err")]
        return Ended(code, texts[0], texts[1], operations)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def content(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@dataclass(frozen=True)
class Case:
    """A command, and what must hold after it.

    Args:
        argv: The command, run in a folder with the run folders `a` and `b` and the logs `logs`.
        derived: Start of the paths that it may write.
        result: Returns what the command produced, to compare with the result without a fault.
    """

    argv: tuple[str, ...]
    derived: tuple[str, ...] = ()
    result: Callable[[Path, Ended], object] = lambda _, ended: ended.stdout


def written(*names: str) -> Callable[[Path, Ended], object]:
    """Return a function that returns the names and sizes of the non-empty files below these names."""

    def read(folder: Path, _: Ended) -> object:
        files = [path for name in names for path in [folder / name, *sorted((folder / name).rglob("*"))]]
        return [
            str(path.relative_to(folder))
            for path in files
            if path.is_file() and path.stat().st_size and path.suffix != ".new"
        ]

    return read


def digest(name: str) -> Callable[[Path, Ended], object]:
    return lambda folder, _: hashlib.sha256((folder / name).read_bytes()).hexdigest()


def trials(name: str) -> Callable[[Path, Ended], object]:
    return lambda folder, _: (folder / name / "trials.jsonl").read_text()


CASES = {
    "report": Case(("report", "a"), ("a/report", "a/derived"), written("a/report")),
    "report --json": Case(("report", "a", "--json")),
    "compare": Case(("compare", "a", "b", "--json")),
    "compare --output": Case(("compare", "a", "b", "--output", "out"), ("out",), written("out")),
    "claims": Case(("claims", "a", "--json")),
    "show": Case(("show", "small.yaml", "--json")),
    "status": Case(("testbed", "--json")),
    "clean": Case(("clean", "--json")),
    "pack": Case(("artifact", "pack", "a", "--output", "x.zip"), ("x.zip",), digest("x.zip")),
    "verify": Case(("artifact", "verify", "whole.zip", "--json")),
    "verify folder": Case(("artifact", "verify", "whole", "--json")),
    "bundle verify": Case(("bundle", "verify", "bundle")),
    "bundle list": Case(("bundle", "list", "bundle.tar", "--json"), ("cache",)),
    "bundle cache": Case(("bundle", "cache", "--prune"), ("cache",), lambda *_: None),
    "import": Case(("import", "logs", "--output", "imported"), ("imported",), trials("imported")),
    "init": Case(("init", "experiment", "-o", "new.yaml"), ("new.yaml",), digest("new.yaml")),
    "security init": Case(("security", "init", "keys"), ("keys",), written("keys")),
    "testbed": Case(("testbed", "lab"), ("state/testbed.json",), digest("state/testbed.json")),
}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """Yield a process that runs commands with faults."""
    running = Commands(tmp_path_factory.mktemp("faults"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with run folders, an artifact, a bundle, logs and an experiment."""
    folder = tmp_path_factory.mktemp("template") / "folder"
    small = {"networks": ("host", "weavenet"), "payloads": (64,), "repetitions": 2}
    folder.mkdir()
    make(folder / "a", Plan(**small), name="a")
    make(folder / "b", Plan(**small, seed=8), name="b")
    artifact.pack([folder / "a"], folder / "whole.zip")
    shutil.unpack_archive(folder / "whole.zip", folder / "whole")
    bundles.small(folder / "bundle", Path(shutil.which("true") or ""))
    with tarfile.open(folder / "bundle.tar", "w") as archive:
        archive.add(folder / "bundle", ".")
    log = folder / "logs" / "host" / "latency" / "pub.txt"
    log.parent.mkdir(parents=True)
    log.write_text(csv_latency())
    small = experiment(SWEEP, name="small", baseline="host", duration_s=0.1, warmup_s=0)
    (folder / "small.yaml").write_text(small)
    (folder / "state").mkdir(mode=0o700)
    return folder


def fresh(commands: Commands, template: Path) -> Path:
    """Give the watched folder the content of the template."""
    shutil.rmtree(commands.watched, ignore_errors=True)
    shutil.copytree(template, commands.watched)
    return commands.watched


def require_documented(ended: Ended, about: str) -> None:
    about = f"{about}: {ended.code}\n{ended.stdout[-500:]}\n{ended.stderr}"
    assert ended.code in DOCUMENTED, about
    assert "Traceback" not in ended.stderr and "internal error" not in ended.stderr, about
    if ended.code:
        assert "k8sdds: " in ended.stderr and "→" in ended.stderr, about


def require_nothing_half(folder: Path, about: str) -> None:
    """Check that no temporary and no empty file is left."""
    left = [
        path
        for path in folder.rglob("*")
        if path.is_file()
        and (
            is_temporary(str(path.relative_to(folder)))
            or path.suffix == ".new"
            or (path.stat().st_size == 0 and "raw" not in path.parts and path.name != ".lock")
        )
    ]
    assert not left, f"{about}: {left}"


def is_temporary(path: str) -> bool:
    """Return whether a path is that of a temporary file or folder, which a read-only file system keeps."""
    return path.startswith(".") or path.endswith(".new")


def check(commands: Commands, template: Path, name: str, fault: Fault, expected: object) -> int:
    """Run a command with a fault and check the outcome; return its exit code."""
    case, about = CASES[name], f"{name}: {fault}"
    folder = fresh(commands, template)
    before = content(folder)
    ended = commands.run(case.argv, fault)
    require_documented(ended, about)
    if ended.code == 0:
        assert case.result(folder, ended) == expected, about
    # The others also keep temporary files from being deleted.
    if fault.number not in (errno.EIO, errno.EACCES, errno.EROFS):
        require_nothing_half(folder, about)
    after = content(folder)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    assert all(path.startswith(case.derived) for path in changed if not is_temporary(path)), (
        about,
        changed,
    )
    if ended.code != 0:
        again = commands.run(case.argv)
        # A command that failed after its result was complete refuses to replace it.
        assert again.code == 0 or "exists" in again.stderr, (about, again)
        assert case.result(folder, again) == expected, about
    return ended.code


def faults(operations: dict[int, int]) -> Iterator[Fault]:
    """Yield every fault of a command with so many operations by error number."""
    for number, count in operations.items():
        for at in range(1, count + 1):
            yield Fault(number, at)
            if number in (errno.ENOSPC, errno.EROFS):
                yield Fault(number, at, sticky=True)


def sweep(commands: Commands, template: Path, name: str, sample: int | None) -> Counter[int]:
    """Check a command with all faults, or with a sample; return the number of each exit code."""
    folder = fresh(commands, template)
    without = commands.run(CASES[name].argv)
    assert without.code == 0, without
    expected = CASES[name].result(folder, without)
    every = list(faults(without.operations))
    assert every, f"{name} has no operations in the watched folder"
    chosen = every if sample is None else random.Random(name).sample(every, min(sample, len(every)))
    counts = Counter(check(commands, template, name, fault, expected) for fault in chosen)
    print(f"{name}: {len(chosen)} of {len(every)} faults: {dict(counts)}")
    return counts


@pytest.mark.parametrize("name", ["report", "pack", "import", "clean"])
def test_a_sample_of_faults_ends_in_documented_errors(commands: Commands, template: Path, name: str) -> None:
    sweep(commands, template, name, sample=1)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_every_fault_ends_in_a_documented_error(commands: Commands, template: Path, name: str) -> None:
    sweep(commands, template, name, sample=None)


RUN = ("run", "small.yaml", "-o", "run")
RESUME = ("run", "--resume", "run")
TRIALS = 2
PARTS = 64
"""Parts of the test of all faults of a campaign, which each take minutes."""


def check_campaign(commands: Commands, template: Path, fault: Fault) -> int:
    """Run a campaign with a fault, then complete it; return the exit code of the campaign with the fault."""
    folder, about = fresh(commands, template), str(fault)
    ended = commands.run(RUN, fault)
    require_documented(ended, about)
    run = folder / "run"
    measured = completed(run)
    if ended.code == 0:
        assert len(measured) == TRIALS, about
    elif (run / "campaign.json").exists():
        assert "run --resume run" in ended.stderr or ended.code in (3, 4), (about, ended.stderr)
    if ended.code != 0:
        again = commands.run(RESUME if (run / "campaign.json").exists() else RUN)
        assert again.code == 0, (about, ended, again)
    records = RunFolder.open(run).attempts()
    # A fault can end an attempt, after which the trial is repeated.
    kept = {record["trial_id"]: record for record in records if record["valid"]}
    assert {trial: kept.get(trial) for trial in measured} == measured, (about, records)
    valid = Counter(record["trial_id"] for record in records if record["valid"])
    assert sorted(valid.values()) == [1] * TRIALS, (about, records)
    # The record of a lab remains if it could not be deleted.
    cleaned = commands.run(("clean",))
    assert cleaned.code == 0 and not list((folder / "state").glob("*-*")), (about, cleaned)
    return ended.code


def completed(run: Path) -> dict[str, dict[str, object]]:
    """Return the valid attempts of a run folder; every line must be complete."""
    path = run / "trials.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    records = [json.loads(line) for line in lines if line]
    read = RunFolder.open(run).attempts() if records else []
    assert len(read) == len(records), "a line is damaged"
    return {record["trial_id"]: record for record in read if record["valid"]}


def campaign_faults(commands: Commands, template: Path) -> list[Fault]:
    fresh(commands, template)
    ended = commands.run(RUN)
    assert ended.code == 0, ended
    return list(faults(ended.operations))


def test_a_campaign_with_a_fault_is_completed_by_resume(commands: Commands, template: Path) -> None:
    full = [
        fault
        for fault in campaign_faults(commands, template)
        if fault.number == errno.ENOSPC and fault.sticky
    ]
    # In the first half are the trials, in the second half is the report.
    check_campaign(commands, template, random.Random(1).choice(full[: len(full) // 2]))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_a_campaign_with_any_fault_is_completed_by_resume(
    commands: Commands, template: Path, part: int
) -> None:
    chosen = campaign_faults(commands, template)[part::PARTS]
    counts = Counter(check_campaign(commands, template, fault) for fault in chosen)
    print(f"run: {len(chosen)} faults: {dict(counts)}")


@pytest.mark.long
@pytest.mark.parametrize(("ignored", "code"), [(False, 5), (True, 0)], ids=["shell", "nohup"])
def test_a_closed_terminal_stops_a_campaign_unless_nohup_started_it(
    template: Path, tmp_path: Path, ignored: bool, code: int
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(template, folder)
    process, terminal = pty.fork()
    if process == 0:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        os.chdir(folder)
        os.execve(K8SDDS, ["k8sdds", *RUN], {**os.environ, "K8SDDS_STATE_DIR": str(folder / "state")})
    while b"[2/" not in os.read(terminal, 4096):
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == code
    assert len(completed(folder / "run")) >= 1
    assert not list((folder / "state").glob("*-*"))
