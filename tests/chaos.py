"""Kill random parts of a running campaign, and the campaign itself, until every trial is valid."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from k8sdds.results.run_folder import CAMPAIGN, RunFolder
from k8sdds.system import processes
from k8sdds.system.errors import InvalidTrials
from tests.commands import K8SDDS, environment
from tests.measuring import experiment

COMMAND = "k8sdds run"
"""Kind of the campaign's own process."""
COMMAND_SHARE = 0.15
"""Share of its kills."""
AIMED_SHARE = 0.5
"""Share of the kills that wait for a running attempt and hit a program that it needs. The attempts of a test are short
compared with the rest of the campaign."""
AIM_S = 60.0
"""How long such a kill waits."""
NEEDED = ("k8sdds-perftest", "k8sdds-supervisor")
"""Start of the kinds of the programs that every attempt needs."""
SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)
"""SIGKILL is twice as likely."""


@dataclass
class Chaos:
    """A campaign whose parts are killed at random moments.

    Args:
        start: Arguments of `k8sdds` that start the campaign.
        folder: Its run folder.
        environment: Environment of the commands.
        parts: Returns the processes that may be killed, from the process id of the command.
        seed: Seed of the moments and the victims.
        pause_s: Shortest and longest time between two kills.
    """

    start: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    parts: Callable[[int], Iterable[int]]
    seed: int = 0
    pause_s: tuple[float, float] = (0.3, 1.5)
    killed: Counter[str] = field(default_factory=Counter)
    """Kills by kind of process."""

    def run(self, kills: int, command_too: bool, timeout_s: float) -> None:
        """Run the campaign to its end and kill parts of it; resume it if its own process was killed, or links were late.

        Args:
            kills: Number of kills after which the campaign is left alone.
            command_too: Whether its own process is killed too, always with SIGKILL.
            timeout_s: Limit for the whole campaign.
        """
        rng = random.Random(self.seed)
        end = time.monotonic() + timeout_s
        while True:
            command = self._start()
            try:
                while command.poll() is None:
                    assert time.monotonic() < end, (self.killed, self._log())
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        command.wait(rng.uniform(*self.pause_s))
                    if self.killed.total() < kills and command.poll() is None:
                        aimed = rng.random() < AIMED_SHARE and self._wait_for_attempt(command)
                        self._kill(rng, command, command_too and not aimed, NEEDED if aimed else ("",))
            finally:
                if command.poll() is None:
                    command.kill()
                    command.wait()
            # On a busy machine, links can be late in all attempts at a trial.
            late = command.returncode == InvalidTrials.exit_code and "link" in self.reasons()
            if command.returncode != -signal.SIGKILL and not late:
                assert command.returncode == 0, (command.returncode, self.killed, self._log())
                return

    def clean(self) -> None:
        """Remove the leftovers of killed campaigns."""
        argv, env = [str(K8SDDS), "clean"], dict(self.environment)
        done = subprocess.run(argv, cwd=self.folder.parent, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def _start(self) -> subprocess.Popen[bytes]:
        resumes = (self.folder / CAMPAIGN).exists()
        args = ["run", "--resume", str(self.folder)] if resumes else list(self.start)
        with self._log_file.open("ab") as log:
            return subprocess.Popen(
                [str(K8SDDS), *args], cwd=self.folder.parent, env=dict(self.environment),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def _log_file(self) -> Path:
        return self.folder.with_suffix(".log")

    def _log(self) -> str:
        return self._log_file.read_text(errors="replace")[-4000:]

    def _wait_for_attempt(self, command: subprocess.Popen[bytes]) -> bool:
        """Wait until a participant runs, for at most AIM_S; return whether one does."""
        end = time.monotonic() + AIM_S
        while time.monotonic() < end and command.poll() is None:
            if any(_kind(command_line(pid)) == "k8sdds-perftest" for pid in self.parts(command.pid)):
                return True
            time.sleep(0.05)
        return False

    def _kill(
        self,
        rng: random.Random,
        command: subprocess.Popen[bytes],
        command_too: bool,
        kinds: tuple[str, ...],
    ) -> None:
        """Kill a random process of a random kind, so that rare kinds are killed as often as frequent ones.

        Args:
            rng: Source of the choices.
            command: The campaign's own process.
            command_too: Whether it may be the one.
            kinds: Starts of the kinds of other processes that may be.
        """
        if command_too and rng.random() < COMMAND_SHARE:
            command.kill()
            self.killed[COMMAND] += 1
            return
        by_kind: dict[str, list[tuple[int, int | None]]] = {}
        for pid in self.parts(command.pid):
            started, argv = processes.start_time(pid), command_line(pid)
            if argv != [""] and _kind(argv).startswith(kinds):
                by_kind.setdefault(_kind(argv), []).append((pid, started))
        if not by_kind:
            return
        kind = rng.choice(sorted(by_kind))
        if processes.kill(*rng.choice(by_kind[kind]), rng.choice(SIGNALS)):
            self.killed[kind] += 1

    def require_one_valid_attempt_per_trial(self) -> None:
        """Check that every trial has exactly one valid attempt, although parts of the campaign were killed."""
        assert self.killed, self._log()
        attempts = RunFolder.open(self.folder).attempts()
        count = f"{self.interrupted()} of {len(attempts)} attempts interrupted"
        print(f"{self.killed.total()} kills {dict(self.killed)}, {count}")
        trials = RunFolder.open(self.folder).campaign["trials"]
        valid = Counter(attempt["trial_id"] for attempt in attempts if attempt["valid"])
        assert valid == dict.fromkeys(trials, 1), (self.killed, self._log())
        numbers = Counter((attempt["trial_id"], attempt["attempt"]) for attempt in attempts)
        assert set(numbers.values()) == {1}

    def interrupted(self) -> int:
        """Return the number of attempts that a kill made invalid."""
        return sum(not attempt["valid"] for attempt in RunFolder.open(self.folder).attempts())

    def reasons(self) -> set[str]:
        """Return the codes of the reasons of invalid attempts."""
        attempts: list[dict[str, Any]] = RunFolder.open(self.folder).attempts()
        return {str(attempt["reason"]).split(":")[0] for attempt in attempts if not attempt["valid"]}


def chaos(folder: Path, sweep: str, repetitions: int, duration_s: float, seed: int) -> Chaos:
    """Return a campaign in the lab whose run folder will be `out` in a folder."""
    head = {"baseline": "host", "repetitions": repetitions, "duration_s": duration_s, "warmup_s": 0.1}
    (folder / "chaos.yaml").write_text(experiment(f"  - {{{sweep}}}\n", **head))
    start = ("run", "chaos.yaml", "-o", "out", "--seed", "1")
    return Chaos(start, folder / "out", environment(folder), descendants, seed)


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes below a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.parent.name))
    found = list(children.get(pid, []))
    for process in found:
        found += children.get(process, [])
    return found


def command_line(pid: int) -> list[str]:
    """Return the command line of a process; [""]: it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return [""]


def _kind(argv: Sequence[str]) -> str:
    """Return the name of a program, with the first argument of ours, such as `k8sdds-supervisor pause`."""
    name = os.path.basename(argv[0])
    return f"{name} {argv[1]}" if name.startswith("k8sdds-supervisor") and len(argv) > 1 else name
