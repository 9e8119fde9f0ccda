"""Test the first process of a pod."""

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest
from supervisor_tools import alive, only_child, state, wait_until, wake_ups

POD = ["--pid", "--fork", "--kill-child", "--mount", "--uts", "--net"]


def pause(supervisor, *options, prefix=(), **kwargs):
    """Start a pod and wait for the byte on its notify descriptor."""
    read, write = os.pipe()
    argv = [*prefix, supervisor.path, "pause", "--notify-fd", str(write), *options]
    process = supervisor.start(argv, pass_fds=[write], **kwargs)
    os.close(write)
    try:
        assert os.read(read, 10) == b"1", "not ready"
        if not prefix:
            assert os.read(read, 10) == b""  # closed after the byte
    finally:
        os.close(read)
    return process


def enter_pod(pid):
    user = ["--user", "--preserve-credentials"] if os.geteuid() != 0 else []
    return ["nsenter", "--target", str(pid), *user, "--pid", "--mount", "--uts", "--net"]


def test_stay(supervisor):
    process = pause(supervisor, "--until-eof", stdin=subprocess.PIPE)
    os.write(process.stdin.fileno(), b"stay\n")
    process.stdin.close()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=0.5)
    process.send_signal(15)
    assert process.wait(30) == 0


def test_ends_on_sigterm_and_sigint(supervisor):
    for end in ("terminate", "interrupt"):
        process = pause(supervisor, stdin=subprocess.DEVNULL)
        process.send_signal(15 if end == "terminate" else 2)
        assert process.wait(30) == 0


def test_ends_with_standard_input(supervisor):
    process = pause(supervisor, "--until-eof", stdin=subprocess.PIPE)
    process.stdin.write(b"ignored\n")
    process.stdin.flush()
    time.sleep(0.1)
    assert process.poll() is None
    process.stdin.close()
    assert process.wait(30) == 0


def test_pod_with_its_own_proc_and_hostname(supervisor, unshare):
    host = socket.gethostname()
    process = pause(
        supervisor, "--until-eof", "--mount-proc", "--hostname", "pod-a",
        prefix=[*unshare, *POD], stdin=subprocess.PIPE,
    )  # fmt: skip
    pid = only_child(process.pid)
    enter = enter_pod(pid)
    inside = subprocess.run(
        [*enter, "sh", "-c", "hostname; cat /proc/1/comm"], capture_output=True, text=True
    )
    assert inside.stdout.split() == ["pod-a", "k8sdds-supervis"], inside.stderr
    assert socket.gethostname() == host
    assert Path("/proc/self").resolve().name == str(os.getpid())

    # Run a participant in the pod.
    directory = supervisor.new_dir()
    argv = supervisor.argv(["hostname"], directory=directory)
    assert subprocess.run([*enter, *argv], timeout=30).returncode == 0
    assert (directory / "stdout").read_text() == "pod-a\n"

    # Everything in the pod ends with the owner of the pipe, including orphans.
    orphan = supervisor.start([*enter, "sh", "-c", "trap '' TERM HUP; setsid sleep 1000 & wait"])
    wait_until(lambda: "sleep" in _names_in(pid), "the orphan to run")
    process.stdin.close()
    process.wait(30)
    orphan.wait(30)
    wait_until(lambda: not alive(pid), "the pod to end")


def _names_in(pid):
    namespace = os.readlink(f"/proc/{pid}/ns/pid")
    names = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "ns/pid") == namespace:
                    names.add((entry / "comm").read_text().strip())
            except OSError:
                continue
    return names


def test_kill_9_of_the_owner_ends_the_pod(supervisor, unshare):
    owner_code = (
        "import subprocess, sys, time;"
        "p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE); time.sleep(1000)"
    )
    read, write = os.pipe()
    argv = [
        *unshare,
        *POD,
        supervisor.path,
        "pause",
        "--until-eof",
        "--mount-proc",
        "--notify-fd",
        str(write),
    ]
    code = owner_code.replace("stdin=subprocess.PIPE", f"stdin=subprocess.PIPE, pass_fds=[{write}]")
    owner = supervisor.start(["python3", "-c", code, *argv], pass_fds=[write])
    os.close(write)
    assert os.read(read, 1) == b"1"
    os.close(read)
    pid = only_child(only_child(owner.pid))
    assert alive(pid)
    owner.kill()
    owner.wait(30)
    wait_until(lambda: not alive(pid), "the pod to end")


def test_reaps_orphans(supervisor, unshare):
    process = pause(supervisor, "--until-eof", "--mount-proc", prefix=[*unshare, *POD], stdin=subprocess.PIPE)
    pid = only_child(process.pid)
    enter = enter_pod(pid)
    subprocess.run([*enter, "sh", "-c", "for i in 1 2 3 4 5; do (sleep 0.05 &) ; done"], check=True)
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: children.read_text() == "", "the orphans to be reaped")


def test_signals_from_inside_reach_the_first_process(supervisor, unshare):
    process = pause(supervisor, "--mount-proc", prefix=[*unshare, *POD], stdin=subprocess.DEVNULL)
    enter = enter_pod(only_child(process.pid))
    subprocess.run([*enter, "sh", "-c", "kill -TERM 1"])
    assert process.wait(30) == 0


def test_does_not_wake_up(supervisor):
    process = pause(supervisor, stdin=subprocess.DEVNULL)
    wait_until(lambda: state(process.pid) == "S", "the process to sleep")
    before = wake_ups(process.pid)
    time.sleep(1)
    assert wake_ups(process.pid) == before


def test_does_not_change_the_host(supervisor, unshare):
    """Start pause with only a PID namespace: it creates the others. The test itself runs in temporary namespaces."""
    code = 'head -c 1 >/dev/null; ls -d /proc/self/; cat /proc/1/comm; hostname; grep -c " /proc " /proc/self/mountinfo'
    script = (
        f"{{ {' '.join(unshare)} --pid --fork --kill-child {supervisor.path} pause --until-eof --mount-proc "
        f"--hostname wrong --notify-fd 1; }} | {{ {code}; }}"
    )

    prefix_outside = [*unshare, "--mount", "--uts", "sh", "-c"]
    argv = [*prefix_outside, f"echo 1 | {{ {code}; }}"]
    before = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30).stdout
    process = supervisor.start([*prefix_outside, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    # The pod runs until its standard input ends.
    after = "".join(process.stdout.readline().decode() for _ in before.splitlines())
    process.stdin.close()
    process.wait(30)
    assert after == before
    assert after.count("\n") == 4


def test_missing_prerequisites(supervisor):
    def rejected(*arguments):
        argv = [supervisor.path, "pause", *arguments]
        result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
        assert result.returncode == 3
        return result.stderr

    assert "/nowhere" in rejected("--join-cgroup", "/nowhere")
    assert "PID namespace" in rejected("--mount-proc", "--until-eof")
    assert "not open" in rejected("--notify-fd", "99", "--until-eof")


def test_joins_cgroup(supervisor, new_cgroup):
    group = new_cgroup("cpuacct")
    process = pause(supervisor, "--join-cgroup", str(group), stdin=subprocess.DEVNULL)
    assert (group / "cgroup.procs").read_text().split() == [str(process.pid)]
    process.terminate()
    process.wait(30)
