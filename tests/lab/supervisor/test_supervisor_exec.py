"""Test a run over a stream that may break: nothing starts without `go`, and nothing is lost after it."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from supervisor_tools import alive, read_pid, wait_until


class ParticipantExec:
    """Act as the client of `attend`."""

    def __init__(self, supervisor, script, *options, deadline=30):
        self.directory = supervisor.new_dir()
        argv = [
            supervisor.path,
            "attend",
            "--dir",
            str(self.directory),
            "--deadline",
            str(deadline),
            *options,
        ]
        self.process = supervisor.start(
            [*argv, "--", "/bin/sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def send(self, text):
        self.process.stdin.write(text if isinstance(text, bytes) else text.encode())
        self.process.stdin.flush()

    def line(self):
        return self.process.stdout.readline().decode().rstrip("\n")

    def ready(self):
        keyword, start_ns = self.line().split()
        assert keyword == "ready"
        assert abs(int(start_ns) - time.time_ns()) < 60e9
        return self

    def result(self, line):
        """Send a line; return the files by name and the fields of the line `end`."""
        self.send(line)
        return read_files(self.process.stdout)


def read_files(stdout):
    """Parse the output of attend and fetch: (content by file name, fields of the line `end`)."""
    files_by_name = {}
    while True:
        kind, *rest = stdout.readline().decode().split()
        if kind == "end":
            return files_by_name, rest
        assert kind == "file"
        files_by_name[rest[0]] = stdout.read(int(rest[1]))


def fetch(supervisor, directory, deadline=60):
    argv = [supervisor.path, "fetch", "--dir", str(directory), "--deadline", str(deadline)]
    return supervisor.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_files_are_complete_and_followed_by_the_end(supervisor):
    client = ParticipantExec(supervisor, "head -c 300000 /dev/zero; echo grumble >&2; exit 7").ready()
    files_by_name, end = client.result("go\n")
    assert end == ["7"]
    assert files_by_name["stdout"] == bytes(300000)
    assert files_by_name["stderr"] == b"grumble\n"
    assert json.loads(files_by_name["meters.json"])["exit_code"] == 7
    assert client.process.wait(60) == 0


def test_the_begin_of_the_interval_is_reported(supervisor):
    script = "printf M >/proc/self/fd/$K8SDDS_PHASE_FD; sleep 0.3"
    client = ParticipantExec(supervisor, script, "--report-start").ready()
    sent_ns = time.time_ns()
    client.send("go\n")
    keyword, begin_ns = client.line().split()
    assert keyword == "measured" and sent_ns <= int(begin_ns) <= time.time_ns()
    _, end = read_files(client.process.stdout)
    assert end == ["0"]


def test_a_participant_that_is_killed_sends_what_it_has_saved(supervisor):
    script = """trap 'echo saved >"$HOME/arrivals.csv"; kill -KILL $$' USR2
printf M >/proc/self/fd/$K8SDDS_PHASE_FD
while :; do sleep 0.05; done"""
    client = ParticipantExec(supervisor, script, "--report-start").ready()
    client.send("go\n")
    assert client.line().split()[0] == "measured", "the trap is set"
    files_by_name, end = client.result("kill\n")
    assert end == ["137"] and files_by_name["arrivals.csv"] == b"saved\n"
    report = json.loads(files_by_name["meters.json"])
    assert (report["signal"], report["ended_by"]) == ("SIGKILL", "signal")
    assert client.process.wait(60) == 0


def test_agreed_start(supervisor):
    client = ParticipantExec(supervisor, "true").ready()
    start_ns = time.time_ns() + 1_500_000_000
    files_by_name, _ = client.result(f"go {start_ns}\n")
    started = json.loads(files_by_name["meters.json"])["started_at_ns"]
    assert started >= start_ns
    assert time.time_ns() >= start_ns


def test_agreed_start_too_far_ahead(supervisor):
    client = ParticipantExec(supervisor, "true").ready()
    files_by_name, end = client.result(f"go {time.time_ns() + 3600 * 10**9}\n")
    assert end == ["125"]
    assert b"more than a minute" in files_by_name["supervisor.log"]


def test_stream_breaks_before_go(supervisor):
    client = ParticipantExec(supervisor, "echo started").ready()
    client.process.send_signal(signal.SIGKILL)
    files_by_name, end = read_files(fetch(supervisor, client.directory).stdout)
    assert end == ["125"]
    assert files_by_name["stdout"] == b""


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_stream_breaks_after_go(supervisor, how):
    client = ParticipantExec(supervisor, "sleep 1; echo completed; exit 3").ready()
    stdout_file = client.directory / "stdout"
    client.send("go\n")
    wait_until(stdout_file.exists, "the start")
    time.sleep(0.2)
    if how == "killed":
        client.process.send_signal(signal.SIGKILL)
    else:
        client.process.stdin.close()
        client.process.stdout.close()
    process = fetch(supervisor, client.directory)  # waits for the end of the run
    files_by_name, end = read_files(process.stdout)
    assert end == ["3"]
    assert files_by_name["stdout"] == b"completed\n"
    again, _ = read_files(fetch(supervisor, client.directory).stdout)
    assert again == files_by_name


def until_exists(gate):
    return f"while [ ! -e {gate} ]; do sleep 0.02; done"


def test_fetch_deadline(supervisor, tmp_path):
    gate = tmp_path / "gate"
    client = ParticipantExec(supervisor, until_exists(gate)).ready()
    client.send("go\n")
    process = fetch(supervisor, client.directory, deadline=1)
    assert process.wait(60) == 124
    assert b"has not ended" in process.stderr.read()
    gate.touch()


def test_killed_supervisor_is_reported(supervisor, tmp_path):
    pid = tmp_path / "pid"
    client = ParticipantExec(supervisor, f"echo $PPID >{pid}; exec sleep 60").ready()
    client.send("go\n")
    parent = read_pid(pid)
    subprocess.run(["kill", "-KILL", str(parent)], check=True)
    _, end = read_files(client.process.stdout)
    assert end == ["lost"]
    assert not alive(parent)


def test_files_for_the_participant(supervisor, tmp_path):
    key, qos = tmp_path / "private" / "key", tmp_path / "qos.xml"
    secret = b"\x00\n secret \xff"
    client = ParticipantExec(supervisor, f"cat {key} {qos}")
    client.send(f"file 0600 {len(secret)} {key}\n".encode() + secret)
    client.send(f"file 0644 5 {qos}\n<qos>")
    keywords = {client.line().split()[0] for _ in range(3)}
    assert keywords == {"ready", "taken"}
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700
    files_by_name, end = client.result("go\n")
    assert end == ["0"]
    assert files_by_name["stdout"] == secret + b"<qos>"


@pytest.mark.parametrize(
    "line", ["file 0600 3 relative\n", "file 0777 3 /x\n", "file 0600 -1 /x\n", "file 0600\n"]
)
def test_invalid_file_is_rejected(supervisor, line):
    client = ParticipantExec(supervisor, "true").ready()
    client.send(line)
    assert client.process.wait(60) == 2
    assert b"not a file" in client.process.stderr.read()
    _, end = read_files(fetch(supervisor, client.directory).stdout)
    assert end == ["125"]


def test_results_are_not_overwritten_and_can_be_removed(supervisor):
    first = ParticipantExec(supervisor, "true").ready()
    first.result("go\n")
    argv = [supervisor.path, "attend", "--dir", str(first.directory), "--deadline", "5", "--", "/bin/true"]
    assert subprocess.run(argv, capture_output=True, timeout=60).returncode == 2
    second = ParticipantExec(supervisor, "true", "--forget", str(first.directory)).ready()
    assert not first.directory.exists()
    assert second.result("abort\n")[1] == ["125"]


def test_running_run_is_not_removed(supervisor, tmp_path):
    gate = tmp_path / "gate"
    first = ParticipantExec(supervisor, until_exists(gate)).ready()
    first.send("go\n")
    wait_until((first.directory / "stdout").exists, "the start")
    ParticipantExec(supervisor, "true", "--forget", str(first.directory)).ready().process.stdin.close()
    assert (first.directory / "stdout").exists()
    gate.touch()


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_facts_have_the_mtu_of_the_default_route(supervisor):
    """A pod of Cilium has a link of 1500 bytes, and routes of 1450."""
    script = f"""mount -t sysfs sysfs /sys
        for link in eth0 net1; do ip link add $link mtu 1500 type veth peer name to-$link; ip link set $link up; done
        ip address add 10.1.0.2/32 dev eth0; ip address add 10.2.0.2/24 dev net1
        ip route add 10.1.0.1 dev eth0; ip route add default via 10.1.0.1 dev eth0 mtu 1450
        exec {supervisor.path} facts"""
    done = subprocess.run(["unshare", "-n", "-m", "sh", "-ec", script], capture_output=True, check=True)
    mtus = {name: value["mtu_bytes"] for name, value in json.loads(done.stdout)["interfaces"].items()}
    assert (mtus["eth0"], mtus["net1"]) == (1450, 1500)


def test_facts(supervisor):
    facts = json.loads(subprocess.run([supervisor.path, "facts"], capture_output=True, check=True).stdout)
    assert facts["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts["interfaces"]["lo"]["mtu_bytes"] == 65536
    assert set(facts["interfaces"]["lo"]["addresses"]) <= {"127.0.0.1", "::1"}
    assert facts["interfaces"]["lo"]["addresses"][0] == "127.0.0.1"
    assert facts["cpus"]
    assert abs(facts["realtime_ns"] - time.time_ns()) < 60e9
