"""Plan the fixes of machines that `k8sdds status --fix` offers: swap, the memory cgroup, kernel modules.

A fix keeps the original of every file in the same place as a deploy does, so that `destroy` restores it.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from k8sdds import networks
from k8sdds.deploy import boot_command_line, record
from k8sdds.deploy.actions import FIXED, STATE, Action, file_script
from k8sdds.deploy.facts import Facts
from k8sdds.deploy.runner import Observer, Runner
from k8sdds.model.profile import Node, Profile
from k8sdds.system.ssh import Connections

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
    """Return the fixes of all machines; those that reboot a machine come last on it.

    Args:
        profile: The profile.
        facts: Facts by machine; machines without facts are skipped.
    """
    fixes = []
    for node in profile.nodes:
        machine = facts.get(node.name)
        if machine is not None:
            possible = _swap(node, machine), _modules(profile, node, machine), _memory_cgroup(node, machine)
            fixes += [fix for fix in possible if fix is not None]
    return fixes


def apply(profile: Profile, fixes: Sequence[Fix], connections: Connections, observer: Observer) -> None:
    """Apply fixes, on different machines in parallel; return when all machines that reboot answer again.

    Raises:
        PrerequisiteError: A command failed, or a machine does not answer.
    """
    runner = Runner(connections, record.logs(profile.name), observer)
    reboots = [fix.action for fix in fixes if fix.reboots]

    def apply_one(action: Action) -> None:
        if action in reboots:
            boot_command_line.reboot(connections.hosts[action.node], _BEGIN + action.script)
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
    command = f"apt-get install -q=2 -y --no-install-recommends {shlex.quote(package)}"
    script = (
        "export DEBIAN_FRONTEND=noninteractive\napt-get update -q=2\n"
        f"if ! dpkg-query -Wf '${{Status}}' {shlex.quote(package)} 2>/dev/null | grep -q 'ok installed'; then\n"
        f"  {command}\n  mkdir -p {STATE}\n  echo {shlex.quote(package)} >>{STATE}/packages\nfi\n"
    )
    action = Action(
        node.name, PHASE, f"install the kernel modules of {', '.join(missing)} ({package})", script,
        timeout_s=900,
        remedy="the machine must reach its package sources; if the package is for a newer kernel, upgrade and"
        " reboot the machine",
    )  # fmt: skip
    return Fix(action, ("$ apt-get update", f"$ {command}"))


def _memory_cgroup(node: Node, facts: Facts) -> Fix | None:
    if not boot_command_line.must_change(facts):
        return None
    before = facts.values.get("boot_line", "")
    lines = _diff(facts.values["boot_file"], f"{before}\n", f"{boot_command_line.changed_line(before)}\n")
    action = Action(
        node.name, PHASE, "enable the memory cgroup, and reboot", boot_command_line.change_script(facts)
    )
    return Fix(action, (*lines, "$ systemctl reboot"), reboots=True)


def _diff(path: str, before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), path if before else "/dev/null", path, lineterm="", n=0
    )
    return [line for line in lines if not line.startswith("@@")]
