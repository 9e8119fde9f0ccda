"""Enable the memory cgroup on the kernel command line of a Raspberry Pi, which requires a reboot."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace

from k8sdds.deploy.actions import PRELUDE, STATE
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.preflight import BOOT_PARAMETERS
from k8sdds.system.ssh import Host, HostError

REBOOT_TIMEOUT_S = 300
# Prints what differs between two boots. Local nodes share a kernel, so the start time of their first process
# distinguishes their boots.
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id; awk '{ print $22 }' /proc/1/stat"


def must_change(facts: Facts) -> bool:
    """Return whether the memory cgroup is disabled, and can be enabled in a file on the machine."""
    return "memory" not in facts.values.get("controllers", "").split() and bool(facts.values.get("boot_file"))


def with_memory_cgroup(facts: Facts) -> Facts:
    """Return the facts of a machine as they are after its memory cgroup is enabled."""
    controllers = facts.values.get("controllers", "") + " memory"
    return replace(facts, values={**facts.values, "controllers": controllers})


def changed_line(line: str) -> str:
    """Return a kernel command line with the parameters that the kubelet requires, and none that conflict."""
    parameters = [parameter for parameter in line.split() if parameter != "cgroup_disable=memory"]
    missing = [parameter for parameter in BOOT_PARAMETERS.split() if parameter not in parameters]
    return " ".join(parameters + missing)


def change_script(facts: Facts) -> str:
    """Return the script that saves the original command line, writes the new one, and reboots."""
    path, new = facts.values["boot_file"], changed_line(facts.values.get("boot_line", ""))
    # /boot is FAT on a Raspberry Pi, where renaming is not atomic: the file is written in place and synced.
    return (
        f"keep {shlex.quote(path)}\n"
        f"printf '%s\\n' {shlex.quote(new)} >{shlex.quote(path)}\nsync\n"
        f"{_BOOT_ID}\n( sleep 1; systemctl reboot ) >/dev/null 2>&1 &\n"
    )


def reboot(host: Host, script: str) -> None:
    """Run the script of `change_script`, and return when the machine answers after its reboot.

    Raises:
        HostError: The script failed, or the machine does not answer within REBOOT_TIMEOUT_S.
    """
    done = host.run(PRELUDE + script)
    if done.code != 0:
        raise HostError(
            host.name,
            f"its kernel command line could not be changed: {done.err.strip()}",
            f"check that {STATE} and the file can be written, and run the same command again",
        )
    before, deadline_s = done.out.strip(), time.monotonic() + REBOOT_TIMEOUT_S
    while time.monotonic() < deadline_s:
        time.sleep(2)
        host.close()
        try:
            now = host.run(_BOOT_ID, timeout_s=20)
        except HostError:
            if host.ended:
                raise
            continue
        if now.code == 0 and now.out.strip() != before:
            return
    raise HostError(
        host.name,
        f"does not answer {REBOOT_TIMEOUT_S} s after its reboot",
        f"look at its screen; its original kernel command line is in {STATE}/saved on it",
    )
