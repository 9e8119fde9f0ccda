"""SSH without servers: names of machines, and hosts after the end of a command."""

from __future__ import annotations

import pytest

from k8sdds.deploy import fixes
from k8sdds.system.ssh import Connections, Host, HostError, ScriptResult, Target


@pytest.mark.parametrize(
    ("jump_hosts", "target"),
    [
        ("gate", Target("gate")),
        (
            "me@first:2222, ssh://you@gate:22/",
            Target("gate", user="you", port=22, proxy_jump="me@first:2222"),
        ),
        ("me@lab@[2001:db8::7]:22", Target("2001:db8::7", user="me@lab", port=22)),
        ("[gate]:22", Target("gate", port=22)),
    ],
)
def test_jump_hosts(jump_hosts: str, target: Target) -> None:
    assert Target.of_jump_hosts(jump_hosts, None) == target


@pytest.mark.parametrize("jump_hosts", ["gate:ssh", "@gate", "first,", "gate:0"])
def test_wrong_jump_hosts(jump_hosts: str) -> None:
    with pytest.raises(ValueError, match=r"missing|is not a port"):
        Target.of_jump_hosts(jump_hosts, None)


def test_no_connection_is_opened_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "_connect", lambda host: pytest.fail("connected"))
    with Connections([Target("alpha")]) as connections:
        host = connections.hosts["alpha"]
    with pytest.raises(HostError, match="interrupted") as ended:
        host.run("true")
    assert ended.value.remedy


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
