"""SSH without servers: names of machines, and hosts after the end of a command."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from k8sdds.deploy import fixes
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Connections, Host, HostError, ScriptResult, Target
from k8sdds.system.ssh.client import route


def test_jump_hosts(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(
        "Host alpha\n  ProxyJump me@lab@[::1]:24,me@first:2222,ssh://you@gate:22/\n"
        "Host gate\n  HostName 2001:db8::7\nHost base\n  Port 2022\n"
        # The pattern applies to the jump host itself as well.
        "Host *\n  ProxyJump base\n  User root\n"
    )
    hops = [hop for _, hop in route(Target("alpha", "alpha", port=2200, ssh_config=config), False)]
    assert [(hop.user, hop.host, hop.port) for hop in hops] == [
        ("root", "alpha", 2200), ("you", "2001:db8::7", 22), ("me", "first", 2222), ("me@lab", "::1", 24),
        ("root", "base", 2022),
    ]  # fmt: skip
    assert [hop.gateway for hop in hops] == [*hops[1:], False]
    config.write_text("Host alpha\n  ProxyJump gate\nHost gate\n  ProxyJump alpha\n")
    assert [hop.host for _, hop in route(Target("alpha", ssh_config=config), False)] == [
        "alpha",
        "gate",
        "alpha",
    ]


def test_a_missing_openssh_client_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(PrerequisiteError, match=r"^ssh is missing\n  → install openssh-client$"):
        Host(Target("alpha")).run("true")


def test_values_do_not_become_options(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    for target in (
        Target(f"-oProxyCommand=touch {trace}"),
        Target("alpha", user=f"root\nProxyCommand touch {trace}"),
        Target("alpha", key=Path(f"key\nProxyCommand touch {trace}")),
        Target("alpha", user=f"root -oProxyCommand=touch${{IFS}}{trace}"),
    ):
        with pytest.raises(HostError, match="cannot read ssh_config"):
            Host(target).run("true")
    assert not trace.exists()


def test_ctrl_c_is_noticed_whichever_thread_receives_its_signal() -> None:
    def work(host: Host) -> None:
        # The kernel may choose any thread. The main thread, which waits, is not woken up.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        deadline = time.monotonic() + 60
        while not host.ended and time.monotonic() < deadline:
            time.sleep(0.01)
        noticed.append(host.ended)

    noticed: list[bool] = []
    with pytest.raises(KeyboardInterrupt), Connections([Target("alpha")]) as connections:
        connections.all(work, ["alpha"])
    assert noticed == [True]


def test_ctrl_c_does_not_wait_for_work_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k8sdds.system.ssh.host.END_S", 0.1)

    def work(host: Host) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        stuck.wait(60)

    stuck = threading.Event()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), Connections([Target("alpha")]) as connected:
        connected.all(work, ["alpha"])
    assert time.monotonic() - began < 60
    stuck.set()


def test_ctrl_c_ends_the_wait_for_a_reboot(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rebooting(Host):
        def run(self, script: str, *, root: bool = True, timeout_s: float = 60) -> ScriptResult:
            if self.ended:
                return super().run(script)
            self.end()
            return ScriptResult(0, "boot 1", "")

    monkeypatch.setattr(fixes.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(fixes, "REBOOT_TIMEOUT_S", 5)
    with pytest.raises(HostError, match="interrupted"):
        fixes.reboot(Rebooting(Target("pi1")), "true")
