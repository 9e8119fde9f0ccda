"""Test running tasks in several processes: order, errors, killed processes and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from functools import partial

import pytest

from k8sdds.system import parallel


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1})


def process_of(number: int) -> tuple[int, int]:
    return number, os.getpid()


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_results_are_in_order_and_from_two_processes(count: int) -> None:
    results = parallel.run([partial(process_of, number) for number in range(count)])
    assert [number for number, _ in results] == list(range(count))
    assert len({pid for _, pid in results}) == min(count, 2)
    assert os.getpid() in {pid for _, pid in results} or not results


def test_with_other_threads_everything_runs_here() -> None:
    stop = threading.Event()
    other = threading.Thread(target=stop.wait)
    other.start()
    try:
        results = parallel.run([partial(process_of, number) for number in range(4)])
    finally:
        stop.set()
        other.join()
    assert {pid for _, pid in results} == {os.getpid()}


@pytest.mark.parametrize("failing", [0, 1, 3])
def test_the_exception_of_a_task_is_raised(failing: int) -> None:
    def task(number: int) -> int:
        if number == failing:
            raise PermissionError(13, "Permission denied", "figure.png")
        return number

    with pytest.raises(PermissionError) as raised:
        parallel.run([partial(task, number) for number in range(4)])
    assert raised.value.filename == "figure.png"


def test_the_share_of_a_killed_process_runs_here() -> None:
    own = os.getpid()

    def task(number: int) -> int:
        if number == 3 and os.getpid() != own:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert parallel.run([partial(task, number) for number in range(5)]) == [0, 1, 2, 3, 4]


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
        "def first():\n"
        "    time.sleep(60)\n"
        "def other():\n"
        "    os.write(1, b'.')\n"
        "    return bytes(1 << 20)\n"  # more than a pipe holds
        "parallel.run([first, other, other])\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(2) == b".."
    process.kill()
    # The pipe closes only when the other processes have ended, too.
    assert process.communicate(timeout=30) == (b"", b"")
