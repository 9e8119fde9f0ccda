"""Plan the fixes of machines that `k8sdds status --fix` offers: swap, the memory cgroup, kernel modules.

A fix keeps the original of every file in the same place as a deploy does, so that `destroy` restores it. The memory
cgroup of a Raspberry Pi is enabled on its kernel command line, which requires a reboot; `deploy --allow-reboot` does
this, too.
"""

from __future__ import annotations

import difflib
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from k8sdds import networks
from k8sdds.deploy import record
from k8sdds.deploy.actions import FIXED, PRELUDE, STATE, Action, file_script
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.preflight import BOOT_PARAMETERS
from k8sdds.deploy.runner import Observer, Runner
from k8sdds.deploy.scripts import shell
from k8sdds.model.profile import Node, Profile
from k8sdds.system.ssh import Connections, Host, HostError

PHASE = "fix"
_BEGIN = f"mkdir -p {STATE}\n: >{FIXED}\n"
DROP_IN_FILE = "/etc/systemd/system/{unit}.d/90-k8sdds.conf"
# A drop-in rather than a mask: it does not replace a unit file of the user.
DROP_IN = """\
# The kubelet refuses swap. Written by k8sdds; `k8sdds destroy` deletes it.
[Unit]
ConditionPathExists=/run/swap-is-off
"""
"""Condition that no boot meets, so that systemd skips the unit."""
RPI_SWAP = "rpi-swap"
RPI_SWAP_FILE = "/etc/rpi/swap.conf.d/90-k8sdds.conf"
"""Drop-in for swap.conf(5) of Raspberry Pi OS since Debian 13; drop-ins that sort last take precedence."""
RPI_SWAP_CONFIG = "[Main]\nMechanism=none\n"

REBOOT_TIMEOUT_S = 300
# Prints what differs between two boots. Local nodes share a kernel, so the start time of their first process
# distinguishes their boots.
_BOOT_ID = "cat /proc/sys/kernel/random/boot_id; awk '{ print $22 }' /proc/1/stat"


@dataclass(frozen=True)
class Fix:
    """One fix of one machine."""

    action: Action
    preview: tuple[str, ...]
    """What changes, as the lines of a diff or as commands."""
    reboots: bool = False

    @property
    def title(self) -> str:
        """The machine and what the fix does."""
        return f"{self.action.node}: {self.action.title}"


def plan(profile: Profile, facts: Mapping[str, Facts]) -> list[Fix]:
    """Return the fixes of all machines with facts; those that reboot a machine come last on it."""
    fixes: list[Fix | None] = []
    for node in profile.nodes:
        if machine := facts.get(node.name):
            fixes += [_swap(node, machine), _modules(profile, node, machine), _memory_cgroup(node, machine)]
    return [fix for fix in fixes if fix is not None]


def apply(profile: Profile, fixes: Sequence[Fix], connections: Connections, observer: Observer) -> None:
    """Apply fixes, on different machines in parallel; return when all machines that reboot answer again."""
    runner = Runner(connections, record.logs(profile.name), observer)
    reboots = [fix.action for fix in fixes if fix.reboots]

    def apply_one(action: Action) -> None:
        if action in reboots:
            reboot(connections.hosts[action.node], _BEGIN + action.script)
        else:
            runner.run(replace(action, script=_BEGIN + action.script))

    with record.locked(profile.name):
        runner.apply([fix.action for fix in fixes], apply_one)


def _swap(node: Node, facts: Facts) -> Fix | None:
    """Turn swap off, and keep it off at boot: the units that enable it are skipped."""
    if facts.number("swap_kib") == 0:
        return None
    sources, devices = facts.all("swap_by"), facts.pairs("swap")
    services = [source for source in sources if source != RPI_SWAP]
    files = {DROP_IN_FILE.format(unit=unit): DROP_IN for unit in (*services, *devices.values()) if unit}
    if RPI_SWAP in sources:
        files[RPI_SWAP_FILE] = RPI_SWAP_CONFIG
    commands = [f"systemctl stop {shlex.quote(unit)}" for unit in services]
    script = "".join(f"{command}\n" for command in commands)
    for device in devices:
        commands.append(f"swapoff {shlex.quote(device)}")
        # A service that was stopped has released its device.
        script += f"if grep -qF {shlex.quote(device + ' ')} /proc/swaps; then {commands[-1]}; fi\n"
    script += "".join(file_script(path, text) for path, text in files.items()) + "systemctl daemon-reload\n"
    preview = [f"$ {command}" for command in commands]
    preview += [line for path, text in files.items() for line in _diff(path, "", text)]
    by = f" ({', '.join(sources)})" if sources else ""
    action = Action(
        node.name, PHASE, f"turn swap off{by}", script, timeout_s=300,
        remedy="swap that is in use needs as much free memory: stop programs on the machine",
    )  # fmt: skip
    return Fix(action, tuple(preview))


def _modules(profile: Profile, node: Node, facts: Facts) -> Fix | None:
    """Install the package with the kernel modules that Ubuntu leaves out of its default installation."""
    install = networks.find(profile.network.name).install_for(profile.network.engine)
    required = {feature.name for feature in install.node_features} if install else set()
    missing = sorted(name for name in required | {"br_netfilter", "overlay"} if not facts.has(name))
    kernel = facts.values.get("kernel", "")
    if not missing or facts.values.get("os.ID") != "ubuntu" or not kernel:
        return None
    package = f"linux-modules-extra-{'raspi' if kernel.endswith('-raspi') else kernel}"
    quoted = shlex.quote(package)
    command = f"apt-get install -q=2 -y --no-install-recommends {quoted}"
    script = shell("install_modules", PACKAGE=quoted, COMMAND=command, STATE=STATE)
    action = Action(
        node.name, PHASE, f"install the kernel modules of {', '.join(missing)} ({package})", script,
        timeout_s=900,
        remedy="the machine must reach its package sources; if the package is for a newer kernel, upgrade and"
        " reboot the machine",
    )  # fmt: skip
    return Fix(action, ("$ apt-get update", f"$ {command}"))


def _memory_cgroup(node: Node, facts: Facts) -> Fix | None:
    if not lacks_memory_cgroup(facts):
        return None
    before = facts.values.get("boot_line", "")
    lines = _diff(facts.values["boot_file"], f"{before}\n", f"{changed_line(before)}\n")
    action = Action(node.name, PHASE, "enable the memory cgroup, and reboot", memory_cgroup_script(facts))
    return Fix(action, (*lines, "$ systemctl reboot"), reboots=True)


def _diff(path: str, before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), path if before else "/dev/null", path, lineterm="", n=0
    )
    return [line for line in lines if not line.startswith("@@")]


# -- the kernel command line of a Raspberry Pi -----------------------------------------------------------------


def lacks_memory_cgroup(facts: Facts) -> bool:
    """Return whether the memory cgroup is disabled, and can be enabled in a file on the machine."""
    return "memory" not in facts.values.get("controllers", "").split() and bool(facts.values.get("boot_file"))


def changed_line(line: str) -> str:
    """Return a kernel command line with the parameters that the kubelet requires, and none that conflict."""
    parameters = [parameter for parameter in line.split() if parameter != "cgroup_disable=memory"]
    missing = [parameter for parameter in BOOT_PARAMETERS.split() if parameter not in parameters]
    return " ".join(parameters + missing)


def memory_cgroup_script(facts: Facts) -> str:
    """Return the script that saves the original command line, writes the new one, and reboots."""
    path, new = facts.values["boot_file"], changed_line(facts.values.get("boot_line", ""))
    # /boot is FAT on a Raspberry Pi, where renaming is not atomic: the file is written in place and synced.
    return (
        f"keep {shlex.quote(path)}\n"
        f"printf '%s\\n' {shlex.quote(new)} >{shlex.quote(path)}\nsync\n"
        f"{_BOOT_ID}\n( sleep 1; systemctl reboot ) >/dev/null 2>&1 &\n"
    )


def reboot(host: Host, script: str) -> None:
    """Run the script of `memory_cgroup_script`, and return when the machine answers after its reboot."""
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
