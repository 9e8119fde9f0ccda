"""A Raspberry Pi's boot line, which must name the memory cgroup: the one change that takes a reboot."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace

from k8sdds.deploy.actions import PRELUDE
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.preflight import BOOT_WORDS
from k8sdds.system.ssh import Host, HostError

REBOOT_TIMEOUT_S = 300
# Of this boot and no other: machines that share a kernel tell them apart by their first process.
_BOOT = "cat /proc/sys/kernel/random/boot_id; awk '{ print $22 }' /proc/1/stat"


def needed(facts: Facts) -> bool:
    """Whether the memory cgroup is off, and there is a boot line to change."""
    return "memory" not in facts.one.get("controllers", "").split() and bool(facts.one.get("boot_file"))


def enabled(facts: Facts) -> Facts:
    """The same machine with its memory cgroup on."""
    return replace(facts, one={**facts.one, "controllers": facts.one.get("controllers", "") + " memory"})


def line(text: str) -> str:
    """The boot line with what the kubelet needs; what turns the memory cgroup off is taken out."""
    words = [word for word in text.split() if word != "cgroup_disable=memory"]
    return " ".join([*words, *(word for word in BOOT_WORDS.split() if word not in words)])


def script(facts: Facts) -> str:
    """Root's script that writes it, keeping what was there before, and reboots."""
    path, new = facts.one["boot_file"], line(facts.one.get("boot_line", ""))
    # /boot is FAT on a Pi, where no rename is atomic: written in place, and synced.
    return (
        f"keep {shlex.quote(path)}\n"
        f"printf '%s\\n' {shlex.quote(new)} >{shlex.quote(path)}\nsync\n"
        f"{_BOOT}\n( sleep 1; systemctl reboot ) >/dev/null 2>&1 &\n"
    )


def reboot(host: Host, text: str) -> None:
    """Run that script, and return when the machine has booted anew. Raises HostError where it does not."""
    done = host.run(PRELUDE + text)
    if done.code != 0:
        raise HostError(host.name, f"its boot line could not be changed: {done.err.strip()}")
    before, deadline = done.out.strip(), time.monotonic() + REBOOT_TIMEOUT_S
    while time.monotonic() < deadline:
        time.sleep(2)
        host.close()
        try:
            now = host.run(_BOOT, timeout_s=20)
        except HostError:
            continue
        if now.code == 0 and now.out.strip() != before:
            return
    raise HostError(
        host.name,
        f"has not come back {REBOOT_TIMEOUT_S} s after its reboot",
        "look at its screen; what its boot line was is in /etc/k8sdds/saved on it",
    )
