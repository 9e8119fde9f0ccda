"""Test the start of a participant: usage, environment, files, CPUs, capabilities, barrier."""

import json
import os
import re
import subprocess
import time
from pathlib import Path

import pytest
from supervisor_tools import alive, meters, only_child, output, wait_until

KUBERNETES = {
    "CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
    "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
}  # fmt: skip
KUBERNETES_MASK = 0xA80425FB


def call(supervisor, *arguments, **kwargs):
    return subprocess.run([supervisor.path, *arguments], capture_output=True, text=True, timeout=30, **kwargs)


def test_version_and_help(supervisor):
    assert call(supervisor, "--version").stdout.startswith("k8sdds-supervisor ")
    text = call(supervisor, "--help").stdout
    assert "--until-eof" in text and "--memory-interval-ms" in text
    assert call(supervisor, "run", "--help").stdout == text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "pause, run, attend, fetch, facts, processes, stops, capture, count-kinds, answer or ask"),
        (["--frob"], "--frob"),
        (["walk"], "walk"),
        (["pause", "--frob"], "--frob"),
        (["pause", "--dir", "x"], "--dir"),
        (["run", "--until-eof"], "--until-eof"),
        (["run", "--frob=1"], "--frob"),
        (["run", "--dir", "x", "--", "true"], "--deadline"),
        (["run", "--deadline", "1", "--", "true"], "--dir"),
        (["run", "--dir", "x", "--deadline", "1"], "program"),
        (["run", "--dir", "x", "--deadline", "1", "true"], "'true'"),
        (["run", "--dir"], "--dir"),
        (["run", "--deadline", "soon"], "soon"),
        (["run", "--deadline", "0"], "--deadline"),
        (["run", "--deadline", "nan"], "--deadline"),
        (["run", "--cpus", "1-"], "--cpus"),
        (["run", "--cpus", "3-1"], "--cpus"),
        (["run", "--env", "novalue"], "novalue"),
        (["run", "--capabilities", "some"], "some"),
        (["run", "--barrier=1"], "--barrier"),
        (["run", "--memory-interval-ms", "-1"], "--memory-interval-ms"),
    ],
)
def test_usage_errors_name_the_option(supervisor, tmp_path, arguments, expected):
    result = call(supervisor, *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert expected in result.stderr
    assert not list(tmp_path.iterdir())


def test_environment_is_clean(supervisor):
    dirty = {
        **os.environ,
        "ROS_DOMAIN_ID": "7",
        "CYCLONEDDS_URI": "x",
        "LD_LIBRARY_PATH": "/opt/ros/lib",
        "HOME": "/root",
    }
    process = supervisor.run(["env", "-0"], "--env", "A=1=2", "--env", "B=", "--env", "A=3", env=dirty)
    environment = dict(line.split("=", 1) for line in output(process).rstrip("\0").split("\0"))
    assert set(environment) == {"PATH", "LANG", "HOME", "K8SDDS_PHASE_FD", "A", "B"}
    assert (environment["A"], environment["B"], environment["LANG"]) == ("3", "", "C.UTF-8")
    assert environment["HOME"] == str(process.directory)
    assert environment == meters(process)["environment"]


def test_only_the_phase_pipe_is_inherited(supervisor):
    with open("/dev/null") as inherited:
        code = "import os; print(sorted(map(int, os.listdir('/proc/self/fd'))), os.environ.get('K8SDDS_PHASE_FD'))"
        process = supervisor.python(code, pass_fds=[inherited.fileno()])
        without = supervisor.python(code, "--no-phase", pass_fds=[inherited.fileno()])
    *fds, phase = output(process).replace("[", "").replace("]", "").replace(",", "").split()
    assert set(fds) - {phase} <= {"0", "1", "2", "3", "4"}  # one is of the directory listing
    assert len(fds) == 5
    assert output(without).strip() == "[0, 1, 2, 3] None"


def test_default_signal_dispositions(supervisor):
    process = supervisor.run(["grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status"])
    # Signals 32 and 33 belong to the C library, which does not let programs set them.
    settable = ~(0b11 << 31)
    assert [int(line.split()[1], 16) & settable for line in output(process).splitlines()] == [0, 0]


def test_stdout_and_stderr_are_separate(supervisor):
    process = supervisor.run(["sh", "-c", "echo one; echo two >&2; cat; exit 3"], stdin=subprocess.DEVNULL)
    assert process.returncode == 3
    assert output(process) == "one\n"
    assert (process.directory / "stderr").read_text() == "two\n"
    assert sorted(p.name for p in process.directory.iterdir()) == ["meters.json", "stderr", "stdout"]


@pytest.mark.parametrize("name", ["stdout", "stderr", "meters.json"])
def test_results_are_not_overwritten(supervisor, tmp_path, name):
    folder = tmp_path / "there"
    folder.mkdir()
    (folder / name).write_text("precious")
    result = call(
        supervisor, "run", "--dir", str(folder), "--deadline", "5", "--", "touch", str(tmp_path / "ran")
    )
    assert result.returncode == 2
    assert f"{folder}/{name}" in result.stderr
    assert (folder / name).read_text() == "precious"
    assert not (tmp_path / "ran").exists()


def test_directory_cannot_be_created(supervisor):
    result = call(supervisor, "run", "--dir", "/proc/nowhere", "--deadline", "5", "--", "true")
    assert result.returncode == 3
    assert "/proc/nowhere" in result.stderr


def test_program_not_found_or_not_executable(supervisor, tmp_path):
    assert supervisor.run(["no-such-program"]).returncode == 127
    plain = tmp_path / "plain"
    plain.write_text("text")
    process = supervisor.run([str(plain)])
    assert process.returncode == 126
    assert str(plain) in process.error
    plain.chmod(0o755)  # now only exec detects it
    process = supervisor.run([str(plain)])
    assert process.returncode == 126
    assert "cannot execute" in process.error
    assert "cannot execute" in meters(process)["error"]


def test_program_is_looked_up_in_path(supervisor, tmp_path):
    program = tmp_path / "mine"
    program.write_text("#!/bin/sh\necho mine\n")
    program.chmod(0o755)
    assert supervisor.run(["mine"]).returncode == 127
    assert output(supervisor.run(["mine"], "--env", f"PATH={tmp_path}:/bin")) == "mine\n"


def test_cpu_pinning(supervisor):
    cpus = sorted(os.sched_getaffinity(0))
    show = "import os; print(sorted(os.sched_getaffinity(0)), sorted(os.sched_getaffinity(os.getppid())))"
    process = supervisor.python(show, "--cpus", str(cpus[-1]), "--own-cpus", str(cpus[0]))
    assert output(process).strip() == f"[{cpus[-1]}] [{cpus[0]}]"
    assert meters(process)["cpus"] == [cpus[-1]]
    process = supervisor.python(show, "--own-cpus", str(cpus[0]))
    assert output(process).strip() == f"{cpus} [{cpus[0]}]"


@pytest.mark.parametrize("option", ["--cpus", "--own-cpus"])
def test_unavailable_cpu_is_reported(supervisor, option):
    cpus = sorted(os.sched_getaffinity(0))
    for unavailable in (1000, 5000):
        process = supervisor.run(["true"], option, f"{cpus[0]},{unavailable}")
        assert process.returncode == 3
        assert option in process.error
        assert str(unavailable) in process.error


def capability_sets(status):
    return {name: int(value, 16) for name, value in re.findall(r"^(Cap\w+|NoNewPrivs):\t(\w+)", status, re.M)}


STATUS = ["grep", "-E", "^(Cap|NoNewPrivs)", "/proc/self/status"]


def test_capabilities_kubernetes(supervisor):
    if os.geteuid() != 0:
        pytest.skip("requires root")
    process = supervisor.run(STATUS)
    report = meters(process)["capabilities"]
    sets = capability_sets(output(process))
    assert set(report["kept"]) | set(report["missing"]) == KUBERNETES
    assert sets["CapPrm"] == sets["CapEff"] == sets["CapBnd"] & sets["CapPrm"]
    assert (sets["CapInh"], sets["CapAmb"], sets["NoNewPrivs"]) == (0, 0, 1)
    if not report["missing"]:
        assert sets["CapPrm"] == sets["CapBnd"] == KUBERNETES_MASK
        assert report["bounding_limited"] is True


def test_missing_capabilities_are_reported(supervisor):
    if os.geteuid() != 0:
        pytest.skip("requires root")
    prefix = ["setpriv", "--bounding-set=-net_raw,-mknod"]
    if subprocess.run([*prefix, "true"], capture_output=True).returncode:
        pytest.skip("no setpriv")
    process = supervisor.run(STATUS, prefix=prefix)
    assert process.returncode == 0
    report = meters(process)["capabilities"]
    assert set(report["missing"]) == {"NET_RAW", "MKNOD"}
    assert capability_sets(output(process))["CapPrm"] == KUBERNETES_MASK & ~(1 << 13) & ~(1 << 27)

    # Without SETPCAP the bounding set does not change, and no capability is gained.
    process = supervisor.run(STATUS, prefix=["setpriv", "--bounding-set=-setpcap"])
    assert process.returncode == 0
    report = meters(process)["capabilities"]
    assert report["missing"] == ["SETPCAP"]
    assert report["bounding_limited"] is False
    assert capability_sets(output(process))["CapPrm"] == KUBERNETES_MASK & ~(1 << 8)


def test_capabilities_keep(supervisor):
    process = supervisor.run(STATUS, "--capabilities", "keep")
    own = capability_sets(Path("/proc/self/status").read_text())["CapEff"]
    assert capability_sets(output(process))["CapEff"] == own
    assert len(meters(process)["capabilities"]["kept"]) == bin(own).count("1")


def test_without_capabilities(supervisor, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("requires root to change the user")
    tmp_path.chmod(0o777)
    for parent in tmp_path.parents:
        if parent != Path("/tmp") and str(parent).startswith("/tmp"):
            parent.chmod(0o755)
    prefix = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    process = supervisor.run(["id", "-u"], prefix=prefix)
    if "Permission denied" in process.error and not process.directory.exists():
        pytest.skip("other users cannot execute the program")
    assert process.returncode == 0, process.error
    assert output(process) == "65534\n"
    report = meters(process)
    assert report["capabilities"]["kept"] == []
    assert set(report["capabilities"]["missing"]) == KUBERNETES


@pytest.mark.parametrize(
    "argument", ['quo"te\\', "zwei\nZeilen\t\x01\x7f", "größer 漢字 🚀", b"bad \xff\xc0\xaf\xed\xa0\x80 \xf5"]
)
def test_json_is_valid_with_any_arguments(supervisor, argument):
    process = supervisor.run(
        ["true", argument], "--env", "ODD=" + (argument if isinstance(argument, str) else "x")
    )
    raw = (process.directory / "meters.json").read_bytes()
    report = json.loads(raw.decode("utf-8"))
    if isinstance(argument, str):
        assert report["program"] == ["true", argument]
        assert report["environment"]["ODD"] == argument
    else:
        assert report["program"][1] == "bad " + "\ufffd" * 6 + " \ufffd"
        report["program"][1].encode("utf-8")  # no lone surrogates


def barrier(supervisor, program, *options, **kwargs):
    process = supervisor.spawn(
        program, "--barrier", *options, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **kwargs
    )
    assert process.stdout.readline() == b"ready\n"
    return process


def test_barrier_waits_for_go(supervisor, tmp_path):
    process = barrier(supervisor, ["touch", str(tmp_path / "ran")])
    time.sleep(0.2)
    assert not (tmp_path / "ran").exists()
    assert (process.directory / "stdout").exists()
    process.stdin.write(b"go\n")
    process.stdin.flush()
    assert process.wait(30) == 0
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("line", [b"", b"abort\n", b"go away\n", b"go", "a signal"])
def test_barrier_without_go(supervisor, tmp_path, line):
    process = barrier(supervisor, ["touch", str(tmp_path / "ran")], stderr=subprocess.PIPE)
    if line == "a signal":
        process.terminate()
        process.wait(30)
    else:
        process.communicate(line, timeout=30)
    assert process.returncode == 125
    assert not (tmp_path / "ran").exists()
    report = meters(process)
    assert report["ended_by"] == "abort"
    assert report["started_at"] is report["interval"] is report["cpu_s"] is report["exit_code"] is None
    assert not alive(report["pid"])


def test_stream_breaks_after_go(supervisor, tmp_path):
    gate = tmp_path / "gate"
    process = barrier(supervisor, ["sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done; echo done"])
    process.stdin.write(b"go\n")
    process.stdin.close()
    process.stdout.close()
    process.send_signal(1)  # SIGHUP
    time.sleep(0.1)
    gate.touch()
    assert process.wait(30) == 0
    assert output(process) == "done\n"
    assert meters(process)["exit_code"] == 0


def test_supervisor_killed_at_the_barrier(supervisor, tmp_path):
    process = barrier(supervisor, ["touch", str(tmp_path / "ran")])
    child = only_child(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not alive(child), "the held participant to end")
    assert not (tmp_path / "ran").exists()
