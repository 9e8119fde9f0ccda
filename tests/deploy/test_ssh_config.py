"""ssh_config, known_hosts, agents and jump hosts, with real SSH servers and the files that OpenSSH writes."""

from __future__ import annotations

import ctypes
import os
import pwd
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from k8sdds.system.ssh import Connections, HostError, Target
from tests.deploy.conftest import Farm
from tests.deploy.test_hosts import await_traces, failures_of, gather_values, traces

CLONE_FS, CLONE_NEWNS = 0x200, 0x20000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Provide a home folder with an empty ~/.ssh, and no agent.

    OpenSSH takes the path of the home from the user database, so the folder is mounted there, for this thread and what
    it starts.
    """
    folder = tmp_path / "user"
    (folder / ".ssh").mkdir(mode=0o700, parents=True)
    real = pwd.getpwuid(os.geteuid()).pw_dir
    monkeypatch.setenv("HOME", real)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    libc, cwd = ctypes.CDLL(None, use_errno=True), Path.cwd()
    with open("/proc/thread-self/ns/mnt") as namespace:
        assert libc.unshare(CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "--bind", folder, real], check=True)
        yield folder
        assert libc.unshare(CLONE_FS) == 0 and libc.setns(namespace.fileno(), CLONE_NEWNS) == 0
    os.chdir(cwd)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Path]:
    """Provide the socket of an agent without keys."""
    path = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        yield path
        process.terminate()


def block(farm: Farm, name: str, *lines: str) -> str:
    server = farm.servers[name]
    known = (f"HostName {server.address}", f"Port {server.port}", "User root")
    return "\n  ".join([f"Host {name}", *known, *lines]) + "\n"


def connections_to(farm: Farm, name: str) -> int:
    """Return the number of established connections to a server."""
    server = farm.servers[name]
    argv = ["ss", "-Htn", "state", "established", "dst", server.address, "dport", "=", str(server.port)]
    return len(subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines())


def test_options_of_the_user(farm: Farm, home: Path) -> None:
    farm.add("alpha", "beta", "gamma")
    folder = home / ".ssh"
    (folder / "known_hosts").write_text(farm.known_hosts.read_text())
    (folder / "conf.d").mkdir()
    (folder / "conf.d" / "lab").write_text(block(farm, "alpha"))
    gamma = farm.servers["gamma"]
    # A file that is included in a block applies to the hosts of the block only, and the block continues after it.
    (folder / "conf.d" / "gamma").write_text(
        f"Port {gamma.port}\nHost alpha\n  Port 1\nHost *\n  Port 2\nMatch all\n  HostName {gamma.address}\n"
    )
    (folder / "config").write_text(
        "Include conf.d/l* conf.d/missing*\nHost gamma\n  Include conf.d/gamma\n  User root\n"
        + block(farm, "beta")
        + f"Match host 127.0.1.*\n  IdentityFile {farm.login_key}\n"
    )
    names = ["alpha", "beta", "gamma"]
    expected = {name: name for name in names}
    assert gather_values([Target(name) for name in names]) == (expected, {})
    # A file of the profile replaces the user's.
    other = home / "other"
    other.write_text(block(farm, "alpha").replace("alpha", "beta", 1) + f"  IdentityFile {farm.login_key}\n")
    assert gather_values([Target("beta", ssh_config=other)]) == ({"beta": "alpha"}, {})


def test_mistakes_in_ssh_config_are_reported(farm: Farm, home: Path) -> None:
    farm.add("alpha")
    for text in (
        *("Port many", "Include config", "nonsense", "Match host", 'Host "alpha', 'UserKnownHostsFile "a'),
        *("ProxyJump gate:none", "ProxyJump @gate"),
    ):
        (home / ".ssh" / "config").write_text(f"{text}\n")
        failures = failures_of([Target("alpha")])
        assert failures["alpha"].startswith("alpha: cannot read ssh_config: "), text
    # As in OpenSSH, a key file of a user who does not exist is skipped.
    (home / ".ssh" / "config").write_text(block(farm, "alpha", "IdentityFile ~no-such-user/key"))
    assert "there is no key to log in" in failures_of([Target("alpha")], accept=True)["alpha"]


def test_failed_connection_leaves_no_socket(
    farm: Farm, home: Path, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    (target,) = farm.add("alpha")
    farm.servers["alpha"].stop()
    before = traces()
    with Connections([target]) as connections:
        with pytest.raises(HostError, match="cannot be reached"):
            connections.hosts["alpha"].run("true")
        await_traces(before)


def test_jump_hosts_of_several_machines(farm: Farm, home: Path) -> None:
    farm.add("first", "second", "alpha", "beta")
    (home / ".ssh" / "known_hosts").write_text(farm.known_hosts.read_text())
    jump = f"ProxyJump first,root@{farm.servers['second'].address}:{farm.servers['second'].port}"
    (home / ".ssh" / "config").write_text(
        # The pattern applies to the jump host itself as well.
        block(farm, "alpha", jump) + block(farm, "beta", jump) + block(farm, "first")
        + f"Host *\n  IdentityFile {farm.login_key}\n  ProxyJump first\n"
    )  # fmt: skip
    with Connections([Target("alpha"), Target("beta")]) as connections:
        addresses = connections.all(
            lambda host: host.run("echo $SSH_CONNECTION").out.split()[0], ["alpha", "beta"]
        )
        assert set(addresses.values()) == {"127.0.0.1"}
        assert connections_to(farm, "first") == connections_to(farm, "second") == 2
    # The first jump host closes its connection to the second a moment later.
    deadline = time.monotonic() + 60
    while connections_to(farm, "first") or connections_to(farm, "second"):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_keys_of_jump_hosts_are_verified(farm: Farm, home: Path) -> None:
    farm.add("first", known=False)
    farm.add("alpha", "beta")
    (home / ".ssh" / "known_hosts").write_text(farm.known_hosts.read_text())
    jump = (f"IdentityFile {farm.login_key}", "ProxyJump first")
    (home / ".ssh" / "config").write_text(
        block(farm, "alpha", *jump) + block(farm, "beta", *jump)
        + block(farm, "first", f"IdentityFile {farm.login_key}")
    )  # fmt: skip
    targets = [Target("alpha"), Target("beta")]
    assert failures_of(targets)["alpha"].startswith("alpha: jump host first: its host key is not known")
    assert gather_values(targets, accept=True) == ({"alpha": "alpha", "beta": "beta"}, {})
    # Both connections to it have accepted its key.
    assert (home / ".ssh" / "known_hosts").read_text().count(farm.servers["first"].public().split()[2]) == 1
    farm.servers["first"].stop()
    assert failures_of(targets)["beta"].startswith("beta: jump host first: cannot be reached")


def test_hashed_names_and_several_types_of_keys(farm: Farm, home: Path) -> None:
    # The server prefers its ed25519 key, and the user knows its ecdsa key.
    (target,) = farm.add("alpha", known=False)
    server = farm.servers["alpha"]
    server.stop()
    preferred = farm.folder / "ed25519"
    server.key.rename(preferred)
    server.new_host_key("ecdsa")
    server.options = ("-r", str(preferred))
    server.start()
    farm.known_hosts.write_text(f"{server.public()}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", farm.known_hosts], check=True, capture_output=True)
    assert "127.0.1" not in farm.known_hosts.read_text()
    assert gather_values([target]) == ({"alpha": "alpha"}, {})
    # A key of a type that is not known is not accepted for a known machine.
    kind = server.public().split()[1]
    server.stop()
    server.key.unlink()
    preferred.rename(server.key)
    server.options = ()
    server.start()
    assert server.public().split()[1] != kind
    failures = failures_of([target], accept=True)
    assert "its host key has changed" in failures["alpha"]
    # The suggested command removes it.
    command = failures["alpha"].partition("if you expect this: ")[2].partition(";")[0]
    subprocess.run(command, shell=True, check=True, capture_output=True)
    assert gather_values([target], accept=True) == ({"alpha": "alpha"}, {})


def test_lines_of_known_hosts(farm: Farm, home: Path) -> None:
    (target,) = farm.add("alpha", known=False)
    server = farm.servers["alpha"]
    name, kind, key = server.public().split()
    other = farm.login_key.with_name("login.pub").read_text().split()[1]
    for text, message in (
        (f"[127.0.1.*]:{server.port} {kind} {key}", ""),
        (f"other,{name} {kind} {key} a comment", ""),
        # A key of the address without a port is accepted, but none that differs.
        (f"{server.address} {kind} {key}", ""),
        (f"{server.address} {kind} {other}", "not known"),
        # A machine may have several keys of a type.
        (f"{name} {kind} {other}\n{name} {kind} {key}", ""),
        (f"{name} {kind} {other}", "changed"),
        (f"[127.0.1.*]:*,!{name} {kind} {key}", "not known"),
        (f"{name} {kind} {key}\n@revoked * {kind} {key}", "revoked"),
        (f"{server.address} {kind} {key}\n@revoked {server.address} {kind} {key}", "revoked"),
        (f"@cert-authority * {kind} {key}", "does not support certificates"),
        (f"{name} {kind} !{key}\n|1|a|b {kind} {key}\n{name}\n# {name} {kind} {key}", "not known"),
        (f"{name} sk-ssh-ed25519@openssh.com {other}", "not known"),
    ):
        farm.known_hosts.write_text(text)
        results, failures = gather_values([target])
        assert (message in failures["alpha"]) if message else results == {"alpha": "alpha"}, text


@pytest.mark.parametrize("hashed", ["no", "yes"])
def test_accepted_keys_are_recorded_as_openssh_does(farm: Farm, home: Path, hashed: str) -> None:
    targets = farm.add("alpha", "beta", known=False)
    config = home / ".ssh" / "config"
    config.write_text(f"HashKnownHosts {hashed}\nUserKnownHostsFile ~/.ssh/mine ~/.ssh/second\n")
    mine = home / ".ssh" / "mine"
    mine.write_text("# without a newline at the end")
    targets = [replace(target, known_hosts=None) for target in targets]
    assert gather_values(targets, accept=True) == ({"alpha": "alpha", "beta": "beta"}, {})
    assert len(mine.read_text().splitlines()) == 3
    for server in farm.servers.values():
        name, kind, key = server.public().split()
        found = subprocess.run(["ssh-keygen", "-F", name, "-f", mine], capture_output=True, text=True).stdout
        assert found.split()[-2:] == [kind, key] and (name in mine.read_text()) == (hashed == "no")
    assert gather_values(targets) == ({"alpha": "alpha", "beta": "beta"}, {})
    # A new file and its folder are private.
    config.unlink()
    mine.unlink()
    (home / ".ssh").rmdir()
    assert gather_values(targets, accept=True)[1] == {}
    assert (home / ".ssh").stat().st_mode & 0o777 == 0o700
    assert (home / ".ssh" / "known_hosts").stat().st_mode & 0o777 == 0o600


def test_keys_of_the_agent(farm: Farm, home: Path, agent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (target,) = farm.add("alpha")
    without_key = replace(target, key=None)
    plain = farm.login_key.read_text()
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-N", "secret", "-f", farm.login_key], check=True, capture_output=True
    )
    failures = failures_of([target])
    assert "requires a passphrase" in failures["alpha"]
    assert f"ssh-add {farm.login_key}" in failures["alpha"]
    assert "there is no key to log in as root" in failures_of([without_key])["alpha"]
    for _ in range(2):
        run_add(agent, plain)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
        assert gather_values([target]) == gather_values([without_key]) == ({"alpha": "alpha"}, {})
        # Again, without the public file.
        farm.login_key.with_name("login.pub").unlink(missing_ok=True)
    # An agent that does not answer has no keys.
    monkeypatch.setenv("SSH_AUTH_SOCK", "/nonexistent")
    assert "requires a passphrase" in gather_values([target])[1]["alpha"]


def run_add(agent: Path, key: str) -> None:
    subprocess.run(
        ["ssh-add", "-q", "-"], input=key, text=True, check=True,
        env={**os.environ, "SSH_AUTH_SOCK": str(agent)},
    )  # fmt: skip


def test_only_the_named_keys_are_offered(
    farm: Farm, home: Path, agent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A server counts the keys, and dropbear refuses after some.
    (target,) = farm.add("alpha")
    monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
    for number in range(12):
        other = home / f"other{number}"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
        run_add(agent, other.read_text())
    assert gather_values([target]) == ({"alpha": "alpha"}, {})
    farm.login_key.with_name("login.pub").rename(farm.folder / "moved")
    assert gather_values([target]) == ({"alpha": "alpha"}, {})
    (farm.folder / "moved").rename(farm.login_key.with_name("login.pub"))
    assert "login refused" in failures_of([replace(target, key=None)])["alpha"]
    # The key of a file comes first if the agent has it.
    run_add(agent, farm.login_key.read_text())
    (home / ".ssh" / "config").write_text(f"IdentityFile {farm.login_key}\n")
    assert gather_values([replace(target, key=None)]) == ({"alpha": "alpha"}, {})
