"""Provide helpers for the tests of the supervisor."""

import array
import fcntl
import json
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

PYTHON = sys.executable


def wait_until(condition, what, seconds=60):
    """Wait until a condition holds and return its value. The timeout is generous for a busy machine."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    pytest.fail(f"waited {seconds} s for {what}")


def state(pid):
    """Return the state of a process as in `ps`, such as S if it sleeps; X if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def alive(pid):
    """Return whether the process exists and is not a zombie."""
    return state(pid) not in "ZX"


def unread_bytes(pipe):
    """Return how much of what was written to a pipe has not been read."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


class Supervisor:
    """Start supervisors, and kill at the end those that are still running."""

    def __init__(self, path: Path, folder: Path):
        self.path = str(path)
        self.folder = folder
        self.started = []
        self.count = 0

    def new_dir(self) -> Path:
        self.count += 1
        return self.folder / f"out{self.count}"

    def argv(self, program, *options, directory, deadline=30):
        run = [self.path, "run", "--dir", str(directory), "--deadline", str(deadline)]
        return [*run, *options, "--", *program]

    def start(self, argv, **kwargs):
        process = subprocess.Popen(argv, **kwargs)
        self.started.append(process)
        return process

    def spawn(self, program, *options, deadline=30, prefix=(), **kwargs):
        """Start a run in the background. The returned process has its directory in `.directory`."""
        directory = self.new_dir()
        argv = [*prefix, *self.argv(program, *options, directory=directory, deadline=deadline)]
        process = self.start(argv, **kwargs)
        process.directory = directory
        return process

    def run(self, program, *options, deadline=30, **kwargs):
        process = self.spawn(program, *options, deadline=deadline, stderr=subprocess.PIPE, **kwargs)
        process.error = process.communicate(timeout=60)[1].decode(errors="replace")
        return process

    def python(self, code, *options, **kwargs):
        return self.run([PYTHON, "-c", code], *options, **kwargs)

    def close(self):
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                process.wait(timeout=60)
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream:
                    stream.close()


def meters(process):
    return json.loads((process.directory / "meters.json").read_text(encoding="utf-8"))


def output(process):
    return (process.directory / "stdout").read_text()


def read_pid(path):
    """Return the PID that a participant writes to a file."""

    def content():
        text = path.read_text() if path.exists() else ""
        return int(text) if text.endswith("\n") else None

    return wait_until(content, f"a PID in {path}")


def only_child(pid):
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


def wake_ups(pid):
    """Return how often a process has slept and woken up."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
