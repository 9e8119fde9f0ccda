"""A run over a stream that may break: nothing starts without `go`, nothing is lost after it."""

import json
import signal
import subprocess
import time

import pytest
from supervisor_tools import alive, read_pid, wait_until


class Attended:
    """`attend` as a client over a stream sees it."""

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

    def say(self, text):
        self.process.stdin.write(text if isinstance(text, bytes) else text.encode())
        self.process.stdin.flush()

    def line(self):
        return self.process.stdout.readline().decode().rstrip("\n")

    def ready(self):
        word, moment = self.line().split()
        assert word == "ready"
        assert abs(int(moment) - time.time_ns()) < 60e9
        return self


def files(stdout):
    """What attend and fetch print: (name to content, words of the end)."""
    found = {}
    while True:
        kind, *rest = stdout.readline().decode().split()
        if kind == "end":
            return found, rest
        assert kind == "file"
        found[rest[0]] = stdout.read(int(rest[1]))


def fetch(supervisor, directory, deadline=20):
    argv = [supervisor.path, "fetch", "--dir", str(directory), "--deadline", str(deadline)]
    process = supervisor.start(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return process


def test_its_files_come_whole_and_with_its_end(supervisor):
    attended = Attended(supervisor, "head -c 300000 /dev/zero; echo grumble >&2; exit 7").ready()
    attended.say("go\n")
    found, end = files(attended.process.stdout)
    assert end == ["7"]
    assert found["stdout"] == bytes(300000)
    assert found["stderr"] == b"grumble\n"
    assert json.loads(found["meters.json"])["exit_code"] == 7
    assert attended.process.wait(10) == 0


def test_it_starts_at_the_agreed_moment(supervisor):
    attended = Attended(supervisor, "true").ready()
    moment = time.time_ns() + 1_500_000_000
    attended.say(f"go {moment}\n")
    found, _ = files(attended.process.stdout)
    started = json.loads(found["meters.json"])["started_at_ns"]
    assert started >= moment
    assert time.time_ns() >= moment


def test_a_moment_far_away_is_a_wrong_clock(supervisor):
    attended = Attended(supervisor, "true").ready()
    attended.say(f"go {time.time_ns() + 3600 * 10**9}\n")
    found, end = files(attended.process.stdout)
    assert end == ["125"]
    assert b"more than a minute" in found["supervisor.log"]


def test_a_stream_that_breaks_before_go_starts_nothing(supervisor):
    attended = Attended(supervisor, "echo started").ready()
    attended.process.send_signal(signal.SIGKILL)
    found, end = files(fetch(supervisor, attended.directory).stdout)
    assert end == ["125"]
    assert found["stdout"] == b""


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_a_stream_that_breaks_after_go_loses_nothing(supervisor, how):
    attended = Attended(supervisor, "sleep 1; echo done; exit 3").ready()
    before = attended.directory / "stdout"
    attended.say("go\n")
    wait_until(before.exists, "the start")
    time.sleep(0.2)
    if how == "killed":
        attended.process.send_signal(signal.SIGKILL)
    else:
        attended.process.stdin.close()
        attended.process.stdout.close()
    process = fetch(supervisor, attended.directory)  # waits until it has ended
    found, end = files(process.stdout)
    assert end == ["3"]
    assert found["stdout"] == b"done\n"
    again, _ = files(fetch(supervisor, attended.directory).stdout)
    assert again == found


def test_fetch_waits_no_longer_than_it_is_told(supervisor):
    attended = Attended(supervisor, "sleep 20").ready()
    attended.say("go\n")
    process = fetch(supervisor, attended.directory, deadline=1)
    assert process.wait(15) == 124
    assert b"has not ended" in process.stderr.read()
    attended.process.stdin.close()


def test_a_killed_supervisor_is_told(supervisor, tmp_path):
    pid = tmp_path / "pid"
    attended = Attended(supervisor, f"echo $PPID >{pid}; sleep 60").ready()
    attended.say("go\n")
    parent = read_pid(pid)
    subprocess.run(["kill", "-KILL", str(parent)], check=True)
    _, end = files(attended.process.stdout)
    assert end == ["lost"]
    assert not alive(parent)


def test_files_for_the_participant_arrive_before_it_starts(supervisor, tmp_path):
    key, qos = tmp_path / "private" / "key", tmp_path / "qos.xml"
    secret = b"\x00\n secret \xff"
    attended = Attended(supervisor, f"cat {key} {qos}")
    attended.say(f"file 0600 {len(secret)} {key}\n".encode() + secret)
    attended.say(f"file 0644 5 {qos}\n<qos>")
    words = {attended.line().split()[0] for _ in range(3)}
    assert words == {"ready", "taken"}
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700
    attended.say("go\n")
    found, end = files(attended.process.stdout)
    assert end == ["0"]
    assert found["stdout"] == secret + b"<qos>"


@pytest.mark.parametrize(
    "line", ["file 0600 3 relative\n", "file 0777 3 /x\n", "file 0600 -1 /x\n", "file 0600\n"]
)
def test_what_is_no_file_is_refused(supervisor, line):
    attended = Attended(supervisor, "true").ready()
    attended.say(line)
    assert attended.process.wait(10) == 2
    assert b"not a file" in attended.process.stderr.read()
    _, end = files(fetch(supervisor, attended.directory).stdout)
    assert end == ["125"]


def test_results_are_never_overwritten_and_fetched_ones_forgotten(supervisor):
    first = Attended(supervisor, "true").ready()
    first.say("go\n")
    files(first.process.stdout)
    argv = [supervisor.path, "attend", "--dir", str(first.directory), "--deadline", "5", "--", "/bin/true"]
    assert subprocess.run(argv, capture_output=True, timeout=20).returncode == 2
    second = Attended(supervisor, "true", "--forget", str(first.directory)).ready()
    assert not first.directory.exists()
    second.say("abort\n")
    assert files(second.process.stdout)[1] == ["125"]


def test_a_run_that_goes_on_is_not_forgotten(supervisor):
    first = Attended(supervisor, "sleep 5").ready()
    first.say("go\n")
    wait_until((first.directory / "stdout").exists, "the start")
    Attended(supervisor, "true", "--forget", str(first.directory)).ready().process.stdin.close()
    assert (first.directory / "stdout").exists()


def test_facts(supervisor):
    done = subprocess.run([supervisor.path, "facts"], capture_output=True, text=True, timeout=20, check=True)
    facts = json.loads(done.stdout)
    with open("/proc/sys/kernel/random/boot_id") as file:
        assert facts["boot_id"] == file.read().strip()
    assert facts["interfaces"]["lo"] == {"address": "127.0.0.1", "mtu_bytes": 65536}
    assert facts["cpus"]
    assert abs(facts["realtime_ns"] - time.time_ns()) < 60e9
