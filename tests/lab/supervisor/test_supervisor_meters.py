"""Test the meters against the participants' own measurements."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from supervisor_tools import (
    PYTHON,
    alive,
    meters,
    only_child,
    output,
    state,
    unread_bytes,
    wait_until,
    wake_ups,
)

# Functions for participants that mark their interval and use a given amount of CPU time. A mark returns when the
# supervisor has read it and its meters, and sleeps again.
PHASES = """
import array, fcntl, os, resource, sys, termios, time
fd = int(os.environ['K8SDDS_PHASE_FD'])
def mark(letter):
    os.write(fd, letter)
    unread = array.array('i', [1])
    while unread[0] or state(os.getppid()) != 'S':
        time.sleep(0.01)
        fcntl.ioctl(fd, termios.FIONREAD, unread)
def state(pid):
    with open(f'/proc/{pid}/stat') as file: return file.read().rpartition(')')[2].split()[0]
def used():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime
def burn(seconds):
    end = used() + seconds
    while used() < end: sum(range(1000))
"""
# Uses about 0.5 s of CPU time in the measured interval, and prints what getrusage reports for it.
BURNER = (
    PHASES + "burn(0.3); mark(b'M'); a = used(); burn(0.5); b = used(); mark(b'E'); print(b - a); burn(0.2)"
)


def close_to(value, tolerance=0.2):
    return pytest.approx(value, rel=tolerance, abs=0.03)


def test_measured_interval(supervisor):
    process = supervisor.python(BURNER, "--memory-interval-ms", "50")
    report = meters(process)
    used = float(output(process))
    assert report["schema"] == 1
    assert report["interval"]["kind"] == "measured"
    assert report["sources"]["cpu"] == "proc"
    assert report["sources"]["process_cpu"] == "clock"
    assert report["process_cpu_s"] == close_to(used)
    assert report["cpu_s"] == close_to(used)
    assert report["cpu_user_s"] + report["cpu_system_s"] == close_to(used)
    assert report["interval"]["duration_s"] >= used * 0.8
    assert report["interval"]["start_monotonic_ns"] > report["start_monotonic_ns"]
    assert report["context_switches"]["voluntary"] >= 0
    assert 0 < report["supervisor_cpu_s"] <= report["supervisor_total_cpu_s"]
    assert report["memory_peak_bytes"] >= report["memory_mean_bytes"] > 1_000_000
    assert report["memory_samples"] >= 2
    assert report["throttled_s"] is report["throttled_periods"] is report["cgroup_memory_peak_bytes"] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", report["started_at"])
    assert report["started_at"] < report["ended_at"]
    machine = report["machine"]
    assert machine["cpus"] == os.cpu_count()
    parts = sum(machine[key] for key in ("user_s", "nice_s", "system_s", "irq_s", "softirq_s"))
    assert machine["busy_s"] == pytest.approx(parts)
    assert machine["busy_s"] > 0.3
    assert machine["idle_s"] >= 0
    assert machine["load_1m"] >= 0


def test_window_without_marks(supervisor):
    process = supervisor.python(
        PHASES + "for _ in range(30): burn(0.04); time.sleep(0.1)", "--window", "0.3:0.5"
    )
    report = meters(process)
    assert report["interval"]["kind"] == "measured"
    after_s = (report["interval"]["start_monotonic_ns"] - report["start_monotonic_ns"]) / 1e9
    assert after_s >= 0.3 and after_s + report["interval"]["duration_s"] >= 0.8
    assert 0 < report["cpu_s"] < 1.2


def test_service_measures_from_the_second_go_and_stops_at_end(supervisor):
    options = ("--barrier", "--service", "--window", "0.1:0.2")
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = supervisor.spawn(["sleep", "30"], *options, **pipes)
    assert process.stdout.readline() == b"ready\n"
    sent_ns = []
    for line in (b"go\n", b"go\n", b"go 1\n", b"end\n"):
        sent_ns.append(time.monotonic_ns())
        process.stdin.write(line)
        process.stdin.flush()
        wait_until(lambda: unread_bytes(process.stdin) == 0, "the line to be read")
        time.sleep(2.5)  # much longer than the window
    assert process.wait(60) == 143
    report = meters(process)
    assert (report["ended_by"], report["interval"]["kind"]) == ("signal", "measured")
    assert sent_ns[2] > report["interval"]["start_monotonic_ns"] >= sent_ns[1] + 100_000_000
    refused = process.stderr.read().decode()
    assert refused == "k8sdds-supervisor: after the start: expected kill or end, got: go 1\n"


def test_only_a_service_starts_with_others_and_ends_on_request(supervisor):
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    process = supervisor.spawn(["sleep", "3"], "--barrier", **pipes)
    assert process.stdout.readline() == b"ready\n"
    _, refused = process.communicate(b"go\ngo\nend\n", timeout=60)
    assert process.returncode == 0
    assert [line.partition("expected ")[2] for line in refused.decode().splitlines()] == [
        "kill, got: go",
        "kill, got: end",
    ]


def test_interval_without_marks(supervisor):
    process = supervisor.python(
        PHASES + "burn(0.6); time.sleep(1.5); print(used())", "--memory-interval-ms", "50"
    )
    report = meters(process)
    used = float(output(process))
    assert report["interval"]["kind"] == "process"
    assert report["process_cpu_s"] == close_to(used)
    assert report["cpu_s"] == close_to(used)
    assert report["memory_peak_bytes"] > 1_000_000
    assert report["memory_samples"] > 1
    assert report["sources"]["memory"] == report["sources"]["context_switches"] == "rusage"
    assert any("libc" in library for library in report["libraries"])


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("mark(b'M'); burn(0.1)", "partial"),
        ("mark(b'E'); burn(0.1)", "process"),
        ("mark(b'M'); burn(0.1); mark(b'E'); burn(0.3); mark(b'M'); mark(b'E')", "measured"),
        ("mark(b'M'); burn(0.1); os.write(fd, b'E'); os._exit(0)", "measured"),
        ("os.close(fd); burn(0.1)", "process"),
        ("mark(b'?!\\n')", "process"),
    ],
)
def test_kinds_of_interval(supervisor, code, kind):
    process = supervisor.python(PHASES + code)
    report = meters(process)
    assert process.returncode == 0
    assert report["interval"]["kind"] == kind
    if kind != "process":
        assert report["process_cpu_s"] == pytest.approx(0.1, abs=0.09)


def test_a_participant_that_ends_first_is_reported_as_it_ran_at_the_start(supervisor):
    """The supervisor is stopped from before the end of the interval until the participant has ended."""
    code = PHASES + "mark(b'M'); os.kill(os.getppid(), signal.SIGSTOP); os.write(fd, b'E')"
    process = supervisor.spawn([PYTHON, "-c", f"import signal\n{code}"])
    wait_until(lambda: state(process.pid) == "T", "the supervisor to be stopped")
    participant = only_child(process.pid)
    wait_until(lambda: not alive(participant), "the participant to end")
    process.send_signal(signal.SIGCONT)
    assert process.wait(60) == 0
    report = meters(process)
    assert report["interval"]["kind"] == "measured"
    assert report["execution"]["threads"] == {"other": 1} and report["execution"]["cpus"]


def test_deadline_within_the_interval(supervisor):
    # A shell, which starts long before the deadline, also on a busy machine.
    script = "printf M >/proc/self/fd/$K8SDDS_PHASE_FD; exec sleep 1000"
    report = meters(supervisor.run(["sh", "-c", script], deadline=3))
    assert report["interval"]["kind"] == "partial"
    assert report["timed_out"] is True
    assert report["memory_peak_bytes"] > 0


def test_ended_threads_are_counted(supervisor):
    code = PHASES + (
        "import threading; mark(b'M')\n"
        "def work(): time.sleep(0.02); burn(0.2)\n"
        "for _ in range(2):\n"
        "    t = threading.Thread(target=work); t.start(); t.join()\n"
        "mark(b'E'); print(used())"
    )
    process = supervisor.python(code)
    assert meters(process)["process_cpu_s"] == close_to(0.4)


def test_children_count_only_for_the_pod(supervisor):
    code = (
        PHASES
        + (
            "mark(b'M')\n"
            "for left in (False, True):\n"  # one child is waited for, the other is an orphan that the supervisor reaps
            "    pid = os.fork()\n"
            "    if pid == 0:\n"
            "        if left and os.fork(): os._exit(0)\n"
            "        burn(used() * 0 + 0.3); open(sys.argv[1] + str(left), 'w').close(); os._exit(0)\n"
            "    os.waitpid(pid, 0)\n"
            "while not os.path.exists(sys.argv[1] + 'True'): time.sleep(0.01)\n"
            "time.sleep(0.1); mark(b'E')"
        )
    )
    process = supervisor.run([PYTHON, "-c", code, str(supervisor.folder / "done")])
    report = meters(process)
    assert report["cpu_s"] == pytest.approx(0.6, rel=0.2, abs=0.05)
    assert report["process_cpu_s"] < 0.2


def test_peak_and_mean_memory(supervisor):
    code = PHASES + (
        "mark(b'M'); block = bytearray(b'x') * 64_000_000; time.sleep(0.3); del block; time.sleep(2); mark(b'E')"
    )
    report = meters(supervisor.python(code, "--memory-interval-ms", "20"))
    assert 64_000_000 < report["memory_peak_bytes"] < 120_000_000
    assert report["memory_mean_bytes"] < report["memory_peak_bytes"]
    assert report["memory_samples"] > 5


def test_no_memory_samples_on_request(supervisor):
    report = meters(
        supervisor.python(PHASES + "mark(b'M'); burn(0.1); mark(b'E')", "--memory-interval-ms", "0")
    )
    assert report["memory_samples"] == 0
    assert report["memory_mean_bytes"] is None
    assert report["memory_peak_bytes"] > 0


def test_context_switches(supervisor):
    code = PHASES + (
        "def switches(): print(resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw)\n"
        "switches(); mark(b'M'); switches()\n"
        "for _ in range(50): time.sleep(0.002)\n"
        "switches(); mark(b'E'); switches()"
    )
    process = supervisor.python(code)
    report = meters(process)
    assert report["sources"]["context_switches"] == "proc"
    before, begun, ending, ended = map(int, output(process).split())
    assert 45 <= ending - begun <= report["context_switches"]["voluntary"] <= ended - before


def test_libraries_include_those_loaded_before_the_interval(supervisor):
    report = meters(supervisor.python("import _ctypes\n" + PHASES + "mark(b'M'); mark(b'E')"))
    names = [Path(library).name for library in report["libraries"]]
    assert any(name.startswith("_ctypes") for name in names)
    assert names.count(names[0]) == 1
    assert report["libraries"] == sorted(report["libraries"])


def test_counters_of_sockets_and_interfaces(supervisor, unshare):
    """Use a new network namespace, in which every datagram is known."""
    code = PHASES + (
        "import socket, subprocess\n"
        "receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); receiver.bind(('127.0.0.1', 0))\n"
        "small = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); small.bind(('127.0.0.1', 0))\n"
        "small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)\n"
        "group = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); group.bind(('', 7400))\n"
        "lo = socket.inet_aton('127.0.0.1')\n"
        "group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton('239.1.1.1') + lo)\n"
        "sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, lo)\n"
        "sender.sendto(b'before', receiver.getsockname()); receiver.recv(10)\n"
        "mark(b'M')\n"
        "for _ in range(10): sender.sendto(b'x' * 100, receiver.getsockname()); receiver.recv(200)\n"
        "for _ in range(30): sender.sendto(b'y' * 1000, small.getsockname())\n"
        "for _ in range(5): sender.sendto(b'z' * 100, ('239.1.1.1', 7400)); group.recv(200)\n"
        "sender.sendto(b'f' * 20000, receiver.getsockname()); receiver.recv(30000)\n"
        "mark(b'E')\n"
    )
    setup = 'ip link set lo mtu 1500 up && ip route add 239.0.0.0/8 dev lo; exec "$@"'
    prefix = [*unshare, "--net", "sh", "-c", setup, "sh"]
    process = supervisor.run([PYTHON, "-c", code], prefix=prefix)
    assert process.returncode == 0, (process.directory / "stderr").read_text()
    report = meters(process)
    network = report["network"]
    assert network["udp_out_datagrams"] == 46
    assert network["udp_rcvbuf_errors"] > 0
    assert network["udp_in_errors"] >= network["udp_rcvbuf_errors"]
    # 10 + 5 + 1 datagrams are received, and those of the 30 that fit the small buffer.
    assert network["udp_in_datagrams"] + network["udp_rcvbuf_errors"] >= 16
    # The kernel's membership reports (IGMP) may fall into the interval.
    assert 5 <= network["ip_out_mcast_packets"] <= 9
    assert 5 <= network["ip_in_mcast_packets"] <= 9
    assert 5 * 128 <= network["ip_out_mcast_bytes"] <= 5 * 128 + 4 * 60
    assert (network["ip_frag_oks"], network["ip_frag_creates"]) == (1, 14)
    assert (network["ip_reasm_reqds"], network["ip_reasm_oks"], network["ip_reasm_fails"]) == (14, 1, 0)
    assert None not in network.values()
    lo = report["interfaces"]["lo"]
    assert lo["rx_packets"] == lo["tx_packets"]
    assert lo["tx_packets"] - network["ip_out_mcast_packets"] == 10 + 30 + 14
    assert lo["rx_bytes"] == lo["tx_bytes"] > 50_000
    assert lo["rx_errors"] == lo["tx_dropped"] == 0


@pytest.mark.parametrize(("controller", "source"), [("cpuacct", "cgroup-v1"), ("unified", "cgroup-v2")])
def test_cpu_from_a_cgroup(supervisor, new_cgroup, controller, source):
    group = new_cgroup(controller)
    if controller == "unified" and not (group / "cpu.stat").exists():
        pytest.skip("no cpu.stat on this host")
    for _ in range(2):  # values are differences: the second run does not include the first
        process = supervisor.python(BURNER, "--join-cgroup", str(group))
        report = meters(process)
        assert report["sources"]["cpu"] == source
        assert report["sources"]["cgroups"] == [str(group)]
        assert report["cpu_s"] == close_to(float(output(process)))
        assert report["process_cpu_s"] == close_to(float(output(process)))
        assert report["cpu_user_s"] + report["cpu_system_s"] == close_to(report["cpu_s"])


def test_other_processes_in_the_pod_are_counted(supervisor, new_cgroup):
    group = new_cgroup("cpuacct")
    busy = supervisor.spawn(["sh", "-c", "while :; do :; done"], "--join-cgroup", str(group))
    # The interval ends when others have used 1 s in it, however long they wait for a core.
    waiting = f"""
def of_others():
    with open('{group}/cpuacct.usage') as file:
        return int(file.read()) / 1e9 - used()
mark(b'M')
end = of_others() + 1
while of_others() < end: time.sleep(0.01)
mark(b'E')
"""
    report = meters(supervisor.python(PHASES + waiting, "--join-cgroup", str(group)))
    busy.terminate()
    busy.wait(30)
    assert report["cpu_s"] > report["process_cpu_s"] + 0.5


def test_memory_and_throttling_of_v1_cgroups(supervisor, new_cgroup):
    memory, cpu = new_cgroup("memory"), new_cgroup("cpu")
    if not (cpu / "cpu.cfs_quota_us").exists():
        pytest.skip("no CFS bandwidth control on this host")
    (cpu / "cpu.cfs_period_us").write_text("20000")
    (cpu / "cpu.cfs_quota_us").write_text("1000")  # far below what a process gets on a busy machine
    code = PHASES + "mark(b'M'); block = bytearray(b'x') * 32_000_000; burn(0.05); mark(b'E')"
    process = supervisor.python(code, "--join-cgroup", str(memory), "--join-cgroup", str(cpu))
    report = meters(process)
    assert report["sources"]["cpu"] == "proc"  # neither cgroup counts CPU time
    assert report["sources"]["cgroups"] == [str(memory), str(cpu)]
    assert report["limit_periods"] >= report["throttled_periods"] > 0
    assert report["throttled_s"] > 0
    assert report["cgroup_memory_peak_bytes"] > 32_000_000
    assert report["cgroup_memory_peak_since"] == "start"
    small = meters(supervisor.run(["true"], "--join-cgroup", str(memory)))
    assert small["cgroup_memory_peak_bytes"] < 32_000_000


def test_stops_of_a_cgroup(supervisor, new_cgroup):
    cpu = new_cgroup("cpu")
    if not (cpu / "cpu.cfs_quota_us").exists():
        pytest.skip("no CFS bandwidth control on this host")
    (cpu / "cpu.cfs_period_us").write_text("1000000")
    # Far below what a process gets on a busy machine, but stops are further apart than readings.
    (cpu / "cpu.cfs_quota_us").write_text("30000")
    argv = [supervisor.path, "stops", "--cgroup", str(cpu), "--deadline", "60"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(argv, **pipes) as watch:
        assert watch.stderr.readline() == b"ready\n"
        since_us = time.monotonic_ns() // 1000
        core = str(min(os.sched_getaffinity(0)))
        # On one core, the times of stops add up.
        code = PHASES + "mark(b'M'); burn(0.06); mark(b'E')"
        meters(supervisor.python(code, "--join-cgroup", str(cpu), "--cpus", core, "--own-cpus", core))
        (stops,) = json.loads(watch.communicate()[0])
    stopped_ns = int(dict(map(str.split, (cpu / "cpu.stat").read_text().splitlines()))["throttled_time"])
    assert sum(end - begin for begin, end in stops) * 1000 >= stopped_ns > 0
    step_ns = 2_000_000
    assert sum(end - begin for begin, end in stops) * 1000 <= stopped_ns + len(stops) * step_ns
    times = [moment for stop in stops for moment in stop]
    assert times == sorted(times)
    assert since_us <= times[1] and times[-1] <= time.monotonic_ns() // 1000


def test_stops_need_a_cgroup_with_the_controller(supervisor, new_cgroup):
    def refused(*options):
        argv = [supervisor.path, "stops", "--deadline", "1", *options]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
        return done.returncode, done.stderr

    assert refused() == (2, "k8sdds-supervisor: stops requires --cgroup DIR; see k8sdds-supervisor --help\n")
    memory = new_cgroup("memory")
    missing = f"{memory}/cpu.stat does not contain the time for which a limit stopped it"
    assert refused("--cgroup", str(memory)) == (3, f"k8sdds-supervisor: {missing}\n")


def test_pressure_of_v2_cgroups(supervisor, new_cgroup):
    cpu, unified = new_cgroup("cpu"), new_cgroup("unified")
    if not (unified / "cpu.pressure").exists():
        pytest.skip("no PSI on this host")
    (cpu / "cpu.cfs_period_us").write_text("20000")
    (cpu / "cpu.cfs_quota_us").write_text("5000")
    # A process that used more than its quota waited for a CPU until the next period.
    code = PHASES + "mark(b'M'); burn(0.2); mark(b'E')"
    report = meters(supervisor.python(code, "--join-cgroup", str(cpu), "--join-cgroup", str(unified)))
    assert report["sources"]["cgroups"] == [str(cpu), str(unified)]
    assert report["cpu_pressure_some_s"] >= report["cpu_pressure_full_s"] > 0
    without = meters(supervisor.python(code, "--join-cgroup", str(cpu)))
    assert without["cpu_pressure_some_s"] is without["cpu_pressure_full_s"] is None


def test_own_cgroup_is_used_only_with_the_option(supervisor, new_cgroup):
    group = new_cgroup("cpuacct")
    enter = ["sh", "-c", f'echo 0 > {group}/cgroup.procs && exec "$@"', "sh"]
    report = meters(supervisor.python(BURNER, prefix=enter))
    assert report["sources"] | {"cpu": "proc", "cgroups": []} == report["sources"]
    report = meters(supervisor.python(BURNER, "--cgroup-is-pod", prefix=enter))
    assert report["sources"]["cpu"] == "cgroup-v1"
    assert str(group) in report["sources"]["cgroups"]


def test_cgroup_of_a_container_is_found(supervisor, new_cgroup, tmp_path):
    """Use a cgroup namespace with its own mount of the hierarchy, like a container runtime."""
    group = new_cgroup("cpuacct")
    mount = tmp_path / "mounted"
    mount.mkdir()
    inside = f'umount -R /sys/fs/cgroup; mount -t cgroup -o cpuacct cgroup {mount} || exit 77;exec "$@"'
    prefix = [
        "sh", "-c", f'echo 0 > {group}/cgroup.procs && exec "$@"', "sh",
        "unshare", "--cgroup", "--mount", "sh", "-c", inside, "sh",
    ]  # fmt: skip
    process = supervisor.python(BURNER, prefix=prefix)
    if process.returncode != 0:
        pytest.skip(f"cannot create a cgroup namespace on this host: {process.error}")
    report = meters(process)
    assert report["sources"]["cpu"] == "cgroup-v1"
    assert report["sources"]["cgroups"] == [str(mount)]
    assert report["cpu_s"] == close_to(float(output(process)))


def test_does_not_wake_up_without_samples(supervisor, tmp_path):
    marked = tmp_path / "marked"
    code = PHASES + "mark(b'M'); open(sys.argv[1], 'w').close(); time.sleep(1000)"
    process = supervisor.spawn([PYTHON, "-c", code, str(marked)], "--memory-interval-ms", "0")
    wait_until(marked.exists, "the mark")
    before = wake_ups(process.pid)
    time.sleep(1)
    assert wake_ups(process.pid) == before
    process.terminate()
    process.wait(30)


def test_processes_are_listed_with_their_cpu_time(supervisor):
    """A busy child counts as a process while it runs, and in its parent's time after that."""

    def listed():
        output = subprocess.run([supervisor.path, "processes"], capture_output=True, check=True).stdout
        document = json.loads(output)
        return document, {process["pid"]: process for process in document["processes"]}

    busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    script = f"/bin/sh -c 'read x; {busy}; echo; read x'; echo; read x"
    parent = supervisor.start(["/bin/sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    before, _ = listed()
    parent.stdin.write(b"\n")
    parent.stdin.flush()
    parent.stdout.readline()
    _, running = listed()
    (child,) = (process for process in running.values() if process["parent"] == parent.pid)
    assert child["cpu_s"] > 0.01 and running[parent.pid]["cpu_s"] < child["cpu_s"]
    parent.stdin.write(b"\n")
    parent.stdin.flush()
    parent.stdout.readline()
    after, ended = listed()
    # The kernel reports the time of ended children as user and system time, each in whole clock ticks.
    rounding_s = 2 / os.sysconf("SC_CLK_TCK")
    assert child["pid"] not in ended and ended[parent.pid]["cpu_s"] >= child["cpu_s"] - rounding_s
    assert after["monotonic_ns"] > before["monotonic_ns"]
    own = Path("/proc/self/cgroup").read_text().strip().splitlines()
    assert any(line.endswith(ended[os.getpid()]["cgroup"]) for line in own)
    parent.communicate(b"\n", timeout=60)
