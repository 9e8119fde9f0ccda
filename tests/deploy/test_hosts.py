"""Machines behind real SSH servers: results of scripts, and messages about failures."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from k8sdds import nodes
from k8sdds.deploy import facts
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Connections, Host, HostError, HostLost, ScriptResult, Target
from k8sdds.system.ssh.client import execute
from tests.deploy.conftest import Farm, Up


def gather_values(targets: list[Target], **options: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Return the host names that the machines report, and the failures."""
    with Connections(targets, options.get("accept", False)) as connections:
        results, failures = connections.each(lambda host: host.run("hostname").out.strip(), connections.hosts)
    return results, {name: str(error) for name, error in failures.items()}


def failures_of(targets: list[Target], **options: bool) -> dict[str, str]:
    """Return the failures of machines none of which may report its host name."""
    results, failures = gather_values(targets, **options)
    assert results == {}
    return failures


def test_every_failure_is_reported_if_all_must_succeed(farm: Farm) -> None:
    def ask(host: Host) -> str:
        if host.name != "alpha":
            raise HostError(host.name, "is not well", "a rest")
        return host.run("hostname").out.strip()

    with Connections(farm.add("alpha", "beta", "gamma")) as connections:
        assert connections.all(ask, ["alpha"]) == {"alpha": "alpha"}
        with pytest.raises(HostError, match=r"^beta: is not well\n  → a rest$"):
            connections.all(ask, ["alpha", "beta"])
        with pytest.raises(
            PrerequisiteError, match=r"(?s)^beta: is not well\n  → a rest\ngamma: is not well"
        ):
            connections.all(ask, connections.hosts)


def test_script_is_complete_and_its_end_is_detected(farm: Farm) -> None:
    # A command that reads stdin must not eat the rest of the script.
    with Connections(farm.add("alpha")) as connections:
        done = connections.hosts["alpha"].run("cat\necho 'it'\"'\"'s $HOME'; echo bad >&2; exit 7")
    assert (done.code, done.out, done.err) == (7, "it's $HOME\n", "bad\n")


def test_all_commands_share_one_connection_that_ends(farm: Farm) -> None:
    targets = farm.add("alpha")
    before = traces()
    with Connections(targets) as connections:
        host = connections.hosts["alpha"]
        clients = {host.run("echo $SSH_CONNECTION", root=False).out for _ in range(3)}
        assert len(clients) == 1 and clients != {"\n"}
        # A closed connection is opened again.
        host.close()
        await_traces(before)
        assert host.run("echo $SSH_CONNECTION", root=False).out not in clients
    await_traces(before)
    with pytest.raises(HostError, match="interrupted"):
        host.run("true")


def traces() -> tuple[int, int]:
    """Return the number of sockets and threads of this process, when threads that have ended are gone."""
    deadline = time.monotonic() + 60
    while any(
        isinstance(thread, threading.Timer) or "asks" in thread.name for thread in threading.enumerate()
    ):
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.01)
    return open_sockets(), threading.active_count()


def await_traces(before: tuple[int, int]) -> None:
    """Wait until this process has as many sockets and threads as before: `close` waits only briefly for their end."""
    deadline = time.monotonic() + 60
    while (now := traces()) != before:
        assert time.monotonic() < deadline, (before, now)
        time.sleep(0.01)


def open_sockets() -> int:
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            count += os.readlink(entry).startswith("socket:")
    return count


def test_twenty_machines_run_scripts_side_by_side(farm: Farm) -> None:
    names = [f"host{number}" for number in range(20)]
    targets = farm.add(*names)
    before = traces()
    barrier = threading.Barrier(20, timeout=300)

    def work(host: Host) -> str:
        host.run("true")
        barrier.wait()
        return host.run("hostname").out.strip()

    with Connections(targets) as connections:
        assert connections.all(work, names) == {name: name for name in names}
    await_traces(before)


def test_large_streams_in_all_directions(farm: Farm, tmp_path: Path) -> None:
    # More than the windows of the protocol in each direction at the same time.
    content = os.urandom(1 << 20) * 24
    file = tmp_path / "content"
    file.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    with Connections(farm.add("alpha")) as connections:
        host = connections.hosts["alpha"]
        done = host.send(file, "tee /dev/stderr | base64 -w 0; echo done >&2")
        assert base64.b64decode(done.out) == content and done.err.endswith("done\n")
        assert len(done.err) > len(content) // 2 and done.code == 0
        assert host.send(file, "sha256sum").out.split()[0] == digest
        # A script that does not read its input ends all the same.
        assert host.send(file, "exit 3").code == 3
        assert host.send(b"", "wc -c").out.strip() == "0"
        file.unlink()
        # The memory of this process can be opened, but not be read at address 0.
        for unreadable in (file, Path("/proc/self/mem")):
            with pytest.raises(PrerequisiteError, match=f"cannot read {unreadable}: "):
                host.send(unreadable, "cat >/dev/null")


def test_many_scripts_share_one_connection_of_openssh(up: Up) -> None:
    (node,) = up("hosts", nodes.NodeSpec("alpha", boot="sshd"))
    require_one_connection_of_many_scripts(node.target)


@pytest.mark.long
def test_many_scripts_share_one_connection_of_dropbear(farm: Farm) -> None:
    # dropbear 2022.83 loses sessions or the connection if scripts end while others start.
    (target,) = farm.add("alpha")
    require_one_connection_of_many_scripts(target)


def require_one_connection_of_many_scripts(target: Target) -> None:
    barrier = threading.Barrier(16, timeout=60)

    def work(number: int) -> set[str]:
        barrier.wait()
        # More than sshd starts at the same time.
        used = {host.run("sleep 1; echo $SSH_CONNECTION", root=False).out}
        # A script that ends early makes the server close its channel, although there may be more input.
        for code in range(20):
            assert host.send(b"x" * 100_000, f"exit {code}").code == code
            done = host.run(f"echo $SSH_CONNECTION; exit {code}", root=False)
            assert (done.code, done.err) == (code, "")
            used.add(done.out)
        return used

    with Connections([target]) as connections, ThreadPoolExecutor(16) as pool:
        host = connections.hosts["alpha"]
        used = set.union(*pool.map(work, range(16)))
    assert len(used) == 1 and used != {"\n"}


def test_connections_through_a_forwarded_port_do_not_end_scripts(farm: Farm) -> None:
    def stream() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = server.accept()
                threading.Thread(target=flood, args=(peer,), daemon=True).start()

    def flood(peer: socket.socket) -> None:
        with peer, contextlib.suppress(OSError):
            for _ in range(100):
                peer.sendall(b"event\n" * 100)

    def watch(number: int) -> None:
        while not done.is_set():
            # As a client of Kubernetes ends a watch, while the API server sends events.
            with socket.create_connection(("127.0.0.1", port)) as client:
                assert client.recv(6)

    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server, Connections(farm.add("alpha")) as connections:
        threading.Thread(target=stream, daemon=True).start()
        host = connections.hosts["alpha"]
        with (
            host.forward("127.0.0.1", server.getsockname()[1]) as port,
            ThreadPoolExecutor(4) as pool,
        ):
            watches = pool.map(watch, range(4))
            try:
                used = {host.run("echo $SSH_CONNECTION", root=False).out for _ in range(100)}
            finally:
                done.set()
            assert len(used) == 1 and list(watches) == [None] * 4
        server.shutdown(socket.SHUT_RDWR)


def test_end_of_a_script(farm: Farm) -> None:
    with Connections(farm.add("alpha")) as connections:
        host = connections.hosts["alpha"]
        # Its exit code is awaited after its output has ended.
        assert host.run("exec >&- 2>&-; sleep 1; exit 9").code == 9
        assert host.run("kill -9 $$").code == 255
        assert host.run("echo fine").out == "fine\n"


def test_ctrl_c_ends_running_scripts(farm: Farm) -> None:
    (target,) = farm.add("alpha")
    script = (
        "import sys\nfrom pathlib import Path\nfrom k8sdds.system.ssh import Connections, Target\n"
        f"target = Target('alpha', {target.address!r}, 'root', {target.port}, Path({str(target.key)!r}),"
        f" Path({str(target.known_hosts)!r}))\n"
        "with Connections([target]) as connections:\n"
        "    connections.all(lambda host: (host.run('true'), print('on', flush=True), host.run('sleep 300')),"
        " ['alpha'])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "on\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert stderr.strip().splitlines()[-1] == "KeyboardInterrupt" and "paramiko" not in stderr, stderr


def test_a_closed_connection_is_not_opened_again(farm: Farm) -> None:
    with Connections(farm.add("alpha")) as connections:
        host = connections.hosts["alpha"]
        opened = host._open()
        # As when Ctrl-C ends the connections right before a script starts.
        host.end()
        with pytest.raises(HostLost):
            execute("alpha", opened, "echo again", io.BytesIO(), 10)


def test_lost_connection_is_reported(farm: Farm) -> None:
    targets = farm.add("alpha")
    with Connections(targets) as connections:
        host = connections.hosts["alpha"]
        assert host.run("echo warning >&2; exit 255") == ScriptResult(255, "", "warning\n")
        # End the server's process of this connection, as a power cut does.
        with pytest.raises(HostError, match="alpha: the connection was lost while a script ran"):
            host.run("echo warning >&2; kill -9 $PPID; sleep 60", root=False)


def test_silent_machine_is_lost(farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k8sdds.system.ssh.client.ALIVE_INTERVAL_S", 0.2)
    monkeypatch.setattr("k8sdds.system.ssh.client.ALIVE_LIMIT_S", 3)
    # The server's stopped process is killed later, because nothing else would end it.
    stop = "kill -STOP $PPID; (sleep 10; kill -KILL $PPID) & cat >/dev/null; wait"
    file = tmp_path / "content"
    with file.open("wb") as content:
        content.truncate(256 << 20)
    with Connections(farm.add("alpha")) as connections:
        host = connections.hosts["alpha"]
        # Without output, a machine that answers is not lost.
        assert host.run("sleep 5; echo fine").out == "fine\n"
        for run in (lambda: host.run(stop, root=False), lambda: host.send(file, stop)):
            with pytest.raises(HostError, match="the connection was lost while a script ran"):
                run()
            assert host.run("echo again").out == "again\n"


def test_login_banner_is_no_output(farm: Farm, tmp_path: Path) -> None:
    banner = tmp_path / "banner"
    banner.write_text("Authorized use only\n" * 20)
    with Connections(farm.add("alpha", options=("-b", str(banner)))) as connections:
        assert connections.hosts["alpha"].run("echo fine; exit 255") == ScriptResult(255, "fine\n", "")


def test_proxy_command(farm: Farm, tmp_path: Path) -> None:
    # The connection must use the command instead of the address.
    (target,) = farm.add("alpha")
    trail = tmp_path / "trail"
    script = tmp_path / "proxy"
    script.write_text(
        "import os, socket, sys, threading\n"
        f"open({str(trail)!r}, 'w').write(' '.join(sys.argv[1:]))\n"
        "print('Welcome', flush=True)\n"
        f"s = socket.create_connection(({target.address!r}, {target.port}))\n"
        "def back():\n    while data := s.recv(65536):\n        os.write(1, data)\n    os._exit(0)\n"
        "threading.Thread(target=back, daemon=True).start()\n"
        "while data := os.read(0, 65536):\n    s.sendall(data)\n"
    )
    through = replace(target, proxy_command=(sys.executable, str(script), "a b", "%h", "%p", "%r"))
    assert gather_values([through]) == ({"alpha": "alpha"}, {})
    assert trail.read_text() == f"a b {target.address} {target.port} root"
    # The command ends with the connection, also if it ignores that its input ends.
    stubborn = ("sh", "-c", f"trap '' TERM; {shlex.join(through.proxy_command)}; sleep 1234.5")
    assert gather_values([replace(target, proxy_command=stubborn)]) == ({"alpha": "alpha"}, {})
    deadline = time.monotonic() + 60
    while subprocess.run(["pgrep", "-f", "^sleep 1234.5"], stdout=subprocess.DEVNULL).returncode == 0:
        assert time.monotonic() < deadline, "the command still runs"
        time.sleep(0.05)


def test_failures_of_a_proxy_command(farm: Farm) -> None:
    (target,) = farm.add("alpha")
    for command, message in (
        ("echo no route >&2; exit 1", "cannot be reached: no route\n"),
        ("echo HTTP/1.1 200 OK; cat >/dev/null", "cannot be reached: no SSH server answers"),
        ("exit 1", "cannot be reached: no SSH server answers"),
    ):
        failures = failures_of([replace(target, proxy_command=("sh", "-c", command))])
        assert message in failures["alpha"], failures


def test_changed_host_key_is_always_refused(farm: Farm) -> None:
    targets = farm.add("alpha")
    server = farm.servers["alpha"]
    server.stop()
    server.new_host_key()
    server.start()
    for accept in (False, True):
        failures = failures_of(targets, accept=accept)
        assert "host key has changed" in failures["alpha"]
        assert "ssh-keygen -R" in failures["alpha"]


def test_refused_login_has_a_remedy(farm: Farm) -> None:
    targets = farm.add("alpha")
    (farm.folder / "home" / ".ssh" / "authorized_keys").write_text("")
    failures = failures_of(targets)
    assert "login refused" in failures["alpha"] and "ssh-copy-id" in failures["alpha"]


def test_machine_that_does_not_answer_times_out(farm: Farm) -> None:
    with Connections(farm.add("alpha")) as connections:
        with pytest.raises(HostError, match="no answer within 1 s"):
            connections.hosts["alpha"].run("sleep 30", timeout_s=1)
        # The connection remains usable.
        assert connections.hosts["alpha"].run("echo fine", timeout_s=60).out == "fine\n"


def read_all(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_forwarded_port(farm: Farm) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Connections(farm.add("alpha")) as connections:
        host = connections.hosts["alpha"]
        port = server.getsockname()[1]
        before = traces()
        host.run("true")
        with host.forward("127.0.0.1", port) as local_port, host.forward("127.0.0.1", 1) as refused:
            for round_ in (1, 2):
                with socket.create_connection(("127.0.0.1", refused)) as client:
                    assert client.recv(1) == b""
                with socket.create_connection(("127.0.0.1", local_port)) as client:
                    peer, _ = server.accept()
                    with peer:
                        client.sendall(b"request")
                        client.shutdown(socket.SHUT_WR)
                        assert read_all(peer) == b"request"
                        peer.sendall(b"answer" * 100_000)
                        peer.shutdown(socket.SHUT_WR)
                        assert read_all(client) == b"answer" * 100_000
                if round_ == 1:
                    # The forward continues over a new connection.
                    host.close()
            # An open connection does not delay the end.
            client = socket.create_connection(("127.0.0.1", local_port))
            peer, _ = server.accept()
        with client, peer:
            assert client.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", local_port))
        host.close()
        await_traces(before)


def test_facts_of_a_real_machine(farm: Farm) -> None:
    before = sorted(os.listdir("/sys/class/net"))
    with Connections(farm.add("alpha", "beta")) as connections:
        facts_by_machine, failures = facts.gather(
            connections, sysctls=("net.core.rmem_max",), files=("/etc/hostname", "/nowhere")
        )
    assert not failures and sorted(os.listdir("/sys/class/net")) == before, "the probe changes nothing"
    alpha = facts_by_machine["alpha"]
    assert alpha.values["hostname"] == "alpha" and facts_by_machine["beta"].values["hostname"] == "beta"
    assert alpha.number("memory_kib") == int(Path("/proc/meminfo").read_text().split()[1])
    assert (
        alpha.pairs("sysctl")["net.core.rmem_max"] == Path("/proc/sys/net/core/rmem_max").read_text().strip()
    )
    assert set(alpha.pairs("file")) <= {"/etc/hostname"}
    assert "lo" in alpha.all("link") and str(farm.servers["alpha"].port) in alpha.all("listens")
    assert alpha.userland == alpha.architecture
    # Both machines have the same clock, so the measured difference is within the round-trip time.
    assert abs(alpha.clock_ahead_s) <= alpha.clock_error_s + 0.1
