"""Test running tasks in several processes: order, errors, killed processes and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from k8sdds.system import parallel


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})
    # Threads of pytest and its plugins are not those of a task.
    monkeypatch.setattr(threading, "active_count", lambda: 1)


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_results_are_in_order_and_from_two_processes(count: int) -> None:
    waiting, started = os.pipe()

    def process_of(number: int) -> tuple[int, int]:
        # The first task ends only when another process has begun the second one.
        if number == 0 and count > 1:
            os.read(waiting, 1)
        if number == 1:
            os.write(started, b".")
        return number, os.getpid()

    results = parallel.run([partial(process_of, number) for number in range(count)])
    os.close(waiting)
    os.close(started)
    assert [number for number, _ in results] == list(range(count))
    assert len({pid for _, pid in results}) == min(count, 2)
    assert os.getpid() in {pid for _, pid in results} or not results


def test_each_task_runs_once(tmp_path: Path) -> None:
    with open(tmp_path / "runs", "ab", buffering=0) as file:
        parallel.run([partial(file.write, b".")] * 5000)
    assert (tmp_path / "runs").stat().st_size == 5000


def test_with_other_threads_everything_runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert parallel.run([os.getpid] * 4) == [os.getpid()] * 4


@pytest.mark.parametrize("failing", [0, 1, 3])
def test_the_exception_of_a_task_is_raised(failing: int) -> None:
    def task(number: int) -> int:
        if number == failing:
            raise PermissionError(13, "Permission denied", "figure.png")
        return number

    with pytest.raises(PermissionError) as raised:
        parallel.run([partial(task, number) for number in range(4)])
    assert raised.value.filename == "figure.png"


def test_the_tasks_of_a_killed_process_run_here() -> None:
    own = os.getpid()
    waiting, killed = os.pipe()
    seen = []

    def task(number: int) -> int:
        if os.getpid() != own:
            os.write(killed, b".")
            os.kill(os.getpid(), signal.SIGKILL)
        # This process continues only when the other one has begun a task.
        if not seen:
            seen.append(os.read(waiting, 1))
        return number

    assert parallel.run([partial(task, number) for number in range(5)]) == [0, 1, 2, 3, 4]
    os.close(waiting)
    os.close(killed)


def test_ctrl_c_ends_all_processes_without_their_tracebacks() -> None:
    code = (
        "import os, time\n"
        "from k8sdds.system import parallel\n"
        "os.sched_getaffinity = lambda pid: {0, 1}\n"
        "def task():\n"
        "    os.write(1, b'.')\n"
        "    time.sleep(60)\n"
        "try:\n"
        "    parallel.run([task, task])\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.read(2) == b".."
    os.killpg(process.pid, signal.SIGINT)
    # The pipe closes only when the other process has ended, too.
    output, errors = process.communicate(timeout=30)
    assert (output, errors) == (b"interrupted\n", b"")


def test_no_process_remains_when_the_first_is_killed() -> None:
    code = (
        "import os, time\n"
        "from k8sdds.system import parallel\n"
        "os.sched_getaffinity = lambda pid: {0, 1, 2}\n"
        "first = os.getpid()\n"
        "def task():\n"
        "    if os.getpid() == first:\n"
        "        time.sleep(60)\n"
        "    os.write(1, b'.')\n"
        "    return bytes(1 << 20)\n"  # more than a pipe holds
        "parallel.run([task] * 3)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(2) == b".."
    process.kill()
    # The pipe closes only when the other processes have ended, too.
    assert process.communicate(timeout=30)[1] == b""
