"""Machines behind real SSH servers: results of scripts, and messages about failures."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from k8sdds.deploy import facts
from k8sdds.system import ssh
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Connections, Host, HostError, ScriptResult, Target
from tests.deploy.conftest import Farm


def gather_values(targets: list[Target], **options: bool) -> tuple[dict[str, str], dict[str, str]]:
    """Return the host names that the machines report, and the failures."""
    with Connections(targets, options.get("accept", False)) as connections:
        results, failures = connections.each(lambda host: host.run("hostname").out.strip(), connections.hosts)
    return results, {name: str(error) for name, error in failures.items()}


def test_scripts_run_on_the_machines(farm: Farm) -> None:
    targets = farm.add("alpha", "beta")
    assert gather_values(targets) == ({"alpha": "alpha", "beta": "beta"}, {})


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
    connections = Connections(farm.add("alpha"))
    with connections:
        host = connections.hosts["alpha"]
        clients = {host.run("echo $SSH_CONNECTION", root=False).out for _ in range(3)}
        folder = host.sockets
        assert len(clients) == 1 and len(list(folder.iterdir())) == 1
    assert not folder.exists()


def test_leftovers_of_killed_commands_are_removed() -> None:
    script = (
        "import time\nfrom k8sdds.system.ssh import Connections, Target\n"
        "connections = Connections([Target('alpha')])\n"
        "print(connections.hosts['alpha'].sockets, flush=True)\ntime.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        folder = Path(other.stdout.readline().strip())
        used = folder.with_name(folder.name + "-used")
        used.mkdir()
        with socket.socket(socket.AF_UNIX) as connection:
            connection.bind(str(used / "socket"))
            connection.listen()
            assert not {folder.name, used.name} & set(ssh.clean()) and folder.is_dir()
            other.kill()
            other.wait()
            assert folder.name in ssh.clean() and not folder.exists()
            assert used.is_dir()
        # The next command finds it as well.
        with Connections([]):
            assert not used.exists()


def test_lost_connection_is_reported(farm: Farm) -> None:
    targets = farm.add("alpha")
    with Connections(targets) as connections:
        host = connections.hosts["alpha"]
        assert host.run("echo warning >&2; exit 255") == ScriptResult(255, "", "warning\n")
        # End the server's process of this connection, as a power cut does.
        with pytest.raises(HostError, match="alpha: the connection was lost while a script ran"):
            host.run("echo warning >&2; kill -9 $PPID; sleep 60", root=False)


def test_unknown_host_key_is_refused_until_it_is_accepted(farm: Farm) -> None:
    targets = farm.add("alpha", known=False)
    results, failures = gather_values(targets)
    assert results == {} and "host key is not known" in failures["alpha"]
    assert "--accept-new-host-keys" in failures["alpha"] and not farm.known_hosts.exists()
    assert gather_values(targets, accept=True) == ({"alpha": "alpha"}, {})
    assert gather_values(targets) == ({"alpha": "alpha"}, {})


def test_changed_host_key_is_always_refused(farm: Farm) -> None:
    targets = farm.add("alpha")
    server = farm.servers["alpha"]
    server.stop()
    server.new_host_key()
    server.start()
    for accept in (False, True):
        results, failures = gather_values(targets, accept=accept)
        assert results == {} and "host key has changed" in failures["alpha"]
        assert "ssh-keygen -R" in failures["alpha"]


def test_machine_that_is_down_does_not_affect_others(farm: Farm) -> None:
    targets = farm.add("alpha", "beta")
    farm.servers["beta"].stop()
    results, failures = gather_values(targets)
    assert results == {"alpha": "alpha"}
    assert "cannot be reached" in failures["beta"] and "→" in failures["beta"]


def test_refused_login_has_a_remedy(farm: Farm) -> None:
    targets = farm.add("alpha")
    (farm.folder / "home" / ".ssh" / "authorized_keys").write_text("")
    results, failures = gather_values(targets)
    assert results == {} and "login refused" in failures["alpha"] and "ssh-copy-id" in failures["alpha"]


def test_machine_that_does_not_answer_times_out(farm: Farm) -> None:
    with Connections(farm.add("alpha")) as connections:
        started = time.monotonic()
        with pytest.raises(HostError, match="no answer within 1 s"):
            connections.hosts["alpha"].run("sleep 30", timeout_s=1)
        assert time.monotonic() - started < 20


def test_ssh_config_is_used(farm: Farm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # ssh reads the home folder of its user from the password file, so this test sets a ProxyCommand in the target
    # instead of the user's configuration. The connection must use it instead of the address.
    (target,) = farm.add("alpha")
    trail = tmp_path / "trail"
    script = tmp_path / "proxy"
    script.write_text(
        "#!/usr/bin/python3\nimport os, socket, sys, threading\n"
        f"open({str(trail)!r}, 'w').write(' '.join(sys.argv[1:]))\n"
        f"s = socket.create_connection(({target.address!r}, {target.port}))\n"
        "def back():\n    while data := s.recv(65536):\n        os.write(1, data)\n    os._exit(0)\n"
        "threading.Thread(target=back, daemon=True).start()\n"
        "while data := os.read(0, 65536):\n    s.sendall(data)\n"
    )
    script.chmod(0o755)
    through = Target(
        "alpha",
        target.address,
        "root",
        target.port,
        target.key,
        target.known_hosts,
        (str(script), "a b", "%h"),
    )
    assert gather_values([through]) == ({"alpha": "alpha"}, {})
    assert trail.read_text() == f"a b {target.address}"


def test_facts_of_a_real_machine(farm: Farm) -> None:
    with Connections(farm.add("alpha", "beta")) as connections:
        facts_by_machine, failures = facts.gather(
            connections, sysctls=("net.core.rmem_max",), files=("/etc/hostname", "/nowhere")
        )
    assert not failures
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


def test_probe_does_not_change_the_machine(farm: Farm) -> None:
    before = sorted(path.name for path in Path("/sys/class/net").iterdir())
    with Connections(farm.add("alpha")) as connections:
        facts.gather(connections)
    assert sorted(path.name for path in Path("/sys/class/net").iterdir()) == before


def test_login_without_sudo_is_reported(farm: Farm) -> None:
    # The probe runs `sudo -n`. This substitute prints the message of a sudo that requires a password.
    (target,) = farm.add("alpha")
    with Connections([target]) as connections:
        host: Host = connections.hosts["alpha"]
        folder = farm.folder / "bin"
        folder.mkdir()
        (folder / "sudo").write_text("#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n")
        (folder / "sudo").chmod(0o755)
        with pytest.raises(HostError, match="sudo requires a password"):
            host.run(f"PATH={folder}:$PATH; exec sudo -n -- true")
