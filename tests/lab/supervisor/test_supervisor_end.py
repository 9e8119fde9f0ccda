"""Test the end of a run: exit codes, deadline, signals, and descendants."""

import signal
import subprocess
from pathlib import Path

import pytest
from supervisor_tools import PYTHON, alive, meters, read_pid, wait_until

# A grandchild in a session of its own, outside the participant's process group.
DETACHED = """
import os, sys, time
def detach(path):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            import signal
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(path + '.tmp', 'w').write(str(os.getpid()) + '\\n')
            os.rename(path + '.tmp', path)
            time.sleep(1000)
        os._exit(0)
    os.wait()
    while not os.path.exists(path):
        time.sleep(0.01)
detach(sys.argv[1])
"""


@pytest.mark.parametrize(
    ("script", "returncode", "exit_code", "name"),
    [
        ("exit 0", 0, 0, None),
        ("exit 42", 42, 42, None),
        ("exit 255", 255, 255, None),
        ("kill -SEGV $$", 139, None, "SIGSEGV"),
        ("kill -KILL $$", 137, None, "SIGKILL"),
        ("kill -TERM $$", 143, None, "SIGTERM"),
    ],
)
def test_end_of_the_participant(supervisor, script, returncode, exit_code, name):
    process = supervisor.run(["sh", "-c", script])
    assert process.returncode == returncode
    report = meters(process)
    assert (report["exit_code"], report["signal"], report["timed_out"]) == (exit_code, name, False)
    assert report["ended_by"] == "participant"


@pytest.mark.parametrize(
    ("script", "exit_code", "name", "killed"),
    [
        # The deadline reaches the whole process group.
        ("sleep 1000 & echo $! >PID; wait", None, "SIGTERM", 0),
        ("trap 'exit 0' TERM; echo $$ >PID; while :; do sleep 0.05; done", 0, None, 0),
        # The orphan runs in a session of its own, and inherits that the signal is ignored.
        ("trap '' TERM; (setsid sleep 1000 & echo $! >PID); exec sleep 1000", None, "SIGKILL", 1),
    ],
)
def test_deadline(supervisor, tmp_path, script, exit_code, name, killed):
    script = script.replace("PID", str(tmp_path / "pid"))
    process = supervisor.run(["sh", "-c", script], "--grace", "0.3" if killed else "10", deadline=3)
    assert process.returncode == 124
    report = meters(process)
    assert (report["exit_code"], report["signal"], report["killed_descendants"]) == (exit_code, name, killed)
    assert (report["timed_out"], report["ended_by"]) == (True, "deadline")
    assert not alive(read_pid(tmp_path / "pid")) and not alive(report["pid"])
    assert report["interval"]["kind"] == "process" and report["memory_peak_bytes"] > 0
    assert any("libc" in library for library in report["libraries"])


def test_descendants_do_not_outlive_the_participant(supervisor, tmp_path):
    pid_file = tmp_path / "grandchild"
    process = supervisor.run([PYTHON, "-c", DETACHED, str(pid_file)])
    assert process.returncode == 0
    assert not alive(read_pid(pid_file))
    assert meters(process)["killed_descendants"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_forwarded(supervisor, tmp_path, number):
    ready = tmp_path / "ready"
    code = (
        "import signal, sys, time, pathlib; number = int(sys.argv[1]);"
        "signal.signal(number, lambda got, _: (print('got', int(got)), sys.exit(7)));"
        "pathlib.Path(sys.argv[2]).touch(); time.sleep(1000)"
    )
    process = supervisor.spawn([PYTHON, "-c", code, str(int(number)), str(ready)])
    wait_until(ready.exists, "the participant to be ready")
    process.send_signal(number)
    assert process.wait(30) == 7
    assert (process.directory / "stdout").read_text() == f"got {int(number)}\n"
    report = meters(process)
    assert (report["ended_by"], report["exit_code"], report["timed_out"]) == ("signal", 7, False)


def test_signal_to_a_participant_that_ignores_it(supervisor, tmp_path):
    ready = tmp_path / "ready"
    program = ["sh", "-c", f"trap '' TERM; touch {ready}; while :; do sleep 0.05; done"]
    process = supervisor.spawn(program, "--grace", "0.2")
    wait_until(ready.exists, "the participant to be ready")
    process.terminate()
    assert process.wait(30) == 128 + 9
    assert meters(process)["ended_by"] == "signal"


@pytest.mark.parametrize("options", [(), ("--capabilities", "keep")])
def test_kill_9_of_the_supervisor_kills_the_participant(supervisor, tmp_path, options):
    pid_file = tmp_path / "pid"
    script = f"trap '' TERM HUP; echo $$ > {pid_file}; while :; do sleep 0.05; done"
    process = supervisor.spawn(["sh", "-c", script], *options)
    pid = read_pid(pid_file)
    assert alive(pid)
    process.kill()
    process.wait(30)
    wait_until(lambda: not alive(pid), "the participant to end")
    assert not (process.directory / "meters.json").exists()


def test_result_that_appears_during_the_run_is_not_overwritten(supervisor):
    directory = supervisor.new_dir()
    argv = supervisor.argv(["sh", "-c", f"echo other > {directory}/meters.json"], directory=directory)
    result = subprocess.run(argv, capture_output=True, text=True, timeout=30)
    assert result.returncode == 3
    assert "meters.json" in result.stderr
    assert (directory / "meters.json").read_text() == "other\n"
    assert sorted(path.name for path in directory.iterdir()) == ["meters.json", "stderr", "stdout"]


def test_missing_cgroup_is_reported(supervisor, tmp_path):
    process = supervisor.run(["true"], "--join-cgroup", str(tmp_path / "none"))
    assert process.returncode == 3
    assert f"{tmp_path}/none/cgroup.procs" in process.error
    assert "No such file" in process.error
    assert not process.directory.exists()


def test_proc_of_another_pid_namespace_is_rejected(supervisor, unshare):
    argv = supervisor.argv(["true"], directory=supervisor.new_dir())
    result = subprocess.run(
        [*unshare, "--pid", "--fork", "--kill-child", *argv], capture_output=True, text=True, timeout=30
    )
    assert result.returncode == 3
    assert "/proc" in result.stderr


def test_as_first_process_of_a_pid_namespace(supervisor, unshare):
    process = supervisor.run(
        ["sh", "-c", "exit 9"], prefix=[*unshare, "--pid", "--fork", "--kill-child", "--mount-proc"]
    )
    assert process.returncode == 9
    assert not Path(f"/proc/{process.pid}").exists()


@pytest.mark.parametrize("lines", [10, 500_000])
def test_beginning_and_end_of_a_long_log_are_kept(supervisor, lines):
    code = f"import sys; sys.stderr.writelines(f'{{n:09}}\\n' for n in range({lines})); sys.exit(3)"
    process = supervisor.python(code)
    assert process.returncode == 3
    written, log = 10 * lines, (process.directory / "stderr").read_bytes()
    dropped = meters(process)["stderr_dropped_bytes"]
    assert dropped == max(0, written - (1 << 20) - 4096)
    assert log.startswith(b"000000000\n") and log.endswith(f"{lines - 1:09}\n".encode())
    marker = f"\n[k8sdds-supervisor: {dropped} bytes are left out here]\n" if dropped else ""
    assert len(log) == written - dropped + len(marker)
    assert log[1 << 20 :].startswith(marker.encode())
