"""Plan the settings of tuning sets (deploy/tuning/*.yaml) on a machine, and restore the original ones.

The original values are kept in FOLDER on the machine, from before the first change until they are restored. Those of
an experiment, which tunes nodes for some of its trials, are kept in EXPERIMENT_FOLDER. They do not survive a reboot.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from k8sdds.deploy.actions import sha256
from k8sdds.deploy.scripts import shell
from k8sdds.model.offloads import FEATURES
from k8sdds.system import yaml_text
from k8sdds.system.shipped import ShippedFiles
from k8sdds.system.strict import Strict

FOLDER = "/etc/k8sdds/tuning"
EXPERIMENT_FOLDER = "/etc/k8sdds/experiment-tuning"
UNIT = "k8sdds-tuning.service"
SHORT_NAMES = {
    "generic-receive-offload": "gro", "generic-segmentation-offload": "gso", "tcp-segmentation-offload": "tso",
}  # fmt: skip
"""ethtool's short names of features."""
SETS = ShippedFiles(("deploy/tuning",), "tuning set")


class Interface(Strict):
    """Settings of the network interface between the nodes."""

    mtu: int | None = None
    offloads: dict[Literal["gro", "gso", "tso", "uso", "tunnel"], bool] = Field(default={})
    rings: dict[Literal["rx", "tx"], int] = Field(default={})


class TuningSet(Strict):
    """A tuning set: one file of deploy/tuning."""

    title: str
    source: str
    sysctls: dict[str, int | str] = Field(default={})
    interface: Interface = Interface()


Parameter = tuple[str, str, str]
"""Kind (`sysctl`, `mtu`, `offload` or `ring`), the sysctl's key or the device, and the name of an offload or ring."""


def _described(parameter: Parameter) -> str:
    """Return a parameter for the user: `eth0 ring rx`."""
    kind, where, name = parameter
    return where if kind == "sysctl" else f"{where} {kind} {name}".rstrip()


def _command(parameter: Parameter, value: str) -> str:
    kind, where, name = parameter
    commands = {
        "sysctl": f"sysctl -qw {where}={shlex.quote(value)}\n",
        "mtu": f"ip link set dev {where} mtu {value}\n",
        "ring": f"ethtool -G {where} {name} {value}\n",
        "offload": f"ethtool -K {where} {name} {value}\n",
    }
    return commands[kind]


def _kept(settings: Mapping[Parameter, str]) -> str:
    """Return settings as they are kept on the machine, with `-` for an empty name."""
    return "\n".join(
        f"{kind} {where} {name or '-'} {value}" for (kind, where, name), value in settings.items()
    )


@dataclass(frozen=True)
class TuningPlan:
    """Changes that apply tuning sets to a machine."""

    changes: tuple[str, ...] = ()
    """One line per change, for the user."""
    script: str = ""
    """Script that applies them as root; empty if there are none."""
    notes: tuple[str, ...] = ()
    """Settings that the machine does not support, and which therefore are skipped."""


def load(name: str) -> TuningSet:
    """Return a tuning set by its name."""
    path, text = SETS.read(name)
    return yaml_text.parse(text, TuningSet, str(path))


# Prints lines `tuning<tab>…`: current values, supported values, and what an earlier deploy saved and applied.
_FACTS = shell(
    "tuning_facts",
    OFFLOADS="; ".join(
        f'names["{feature}:"] = "{SHORT_NAMES.get(feature, feature)}"'
        for features in FEATURES.values()
        for feature in features
    ),
)


def facts_script(names: Sequence[str], interface: str | None = None, folder: str = FOLDER) -> str:
    """Return a script that prints the facts which these sets need, to be added to the probe.

    `interface` is the one between the nodes, by default that of the default route.
    """
    keys = sorted({key for name in names for key in load(name).sysctls})
    return f"KEYS='{' '.join(keys)}'\nDEVICE='{interface or ''}'\nFOLDER={folder}\n{_FACTS}"


@dataclass
class _Machine:
    """What a machine has and supports, and what deploy has changed."""

    current: dict[Parameter, str] = field(default_factory=dict)
    state: dict[str, str] = field(default_factory=dict)
    """By sysctl: free, fixed, shadowed or none."""
    largest: dict[Parameter, int] = field(default_factory=dict)
    """Largest MTU and ring sizes."""
    fixed: set[Parameter] = field(default_factory=set)
    former: dict[Parameter, str] = field(default_factory=dict)
    """Original values of what deploy has changed."""
    device: str = ""
    applied: str = ""
    """SHA-256 of the commands that deploy has applied."""
    has_ethtool: bool = True


def _parse(lines: Sequence[str]) -> _Machine:
    machine = _Machine()
    for line in lines:
        match line.split(" "):
            case ["sysctl", key, state, *value]:
                machine.state[key] = state
                machine.current["sysctl", key, ""] = " ".join(value)
            case ["offload", device, name, value, *more]:
                machine.current["offload", device, name] = value
                # `off [requested on]`: the driver refused the change.
                if more[:1] in (["[fixed]"], ["[requested"]):
                    machine.fixed.add(("offload", device, name))
            case ["ring", device, name, value, largest]:
                machine.current["ring", device, name] = value
                machine.largest["ring", device, name] = int(largest)
            case ["mtu", device, _, value, *largest]:
                machine.current["mtu", device, ""] = value
                # Earlier kernels do not report a maximum.
                machine.largest["mtu", device, ""] = int("".join(largest) or value)
            case ["device", device]:
                machine.device = device
            case ["ethtool", "none"]:
                machine.has_ethtool = False
            case ["apply", digest]:
                machine.applied = digest
            case ["former", kind, where, name, *value] if value:
                machine.former[kind, where, "" if name == "-" else name] = " ".join(value)
    return machine


class _Supported:
    """The settings that a machine supports, and notes on the others."""

    def __init__(self, machine: _Machine) -> None:
        self.machine = machine
        self.settings: dict[Parameter, str] = {}
        self.notes: dict[str, None] = {}

    def _add(self, source: str, parameter: Parameter, value: str) -> None:
        other = self.settings.get(parameter, value)
        if other != value:
            self._note(
                f"{_described(parameter)}: {source} sets {value} instead of {other}, and takes precedence"
            )
        self.settings[parameter] = value

    def _note(self, text: str) -> None:
        self.notes[text] = None

    def add_set(self, name: str) -> None:
        tuning_set = load(name)
        for key, wanted in tuning_set.sysctls.items():
            parameter, value = ("sysctl", key, ""), str(wanted)
            state, now = self.machine.state.get(key, "none"), self.machine.current.get(parameter, "")
            if state == "free":
                self._add(name, parameter, value)
            elif state == "none":
                self._note(f"{key} does not exist (a local node does not have settings of the whole kernel)")
            elif now != value:
                self._note(
                    f"{key} stays {now}, not {value}: it belongs to the whole kernel, which local nodes share;"
                    f" on their host, run: sysctl -w {key}='{value}'"
                )
        self.add_interface(name, tuning_set.interface)

    def add_interface(self, source: str, interface: Interface) -> None:
        """Add the settings of the interface between the nodes."""
        machine, device = self.machine, self.machine.device
        shown = device or "no interface"
        if interface.mtu is not None:
            parameter = "mtu", device, ""
            largest = machine.largest.get(parameter, 0)
            if interface.mtu <= largest:
                self._add(source, parameter, str(interface.mtu))
            else:
                self._note(f"{shown} has an MTU of at most {largest} bytes")
        if (interface.offloads or interface.rings) and not machine.has_ethtool:
            self._note(f"{source}: ethtool is not installed: rings and offloads are not changed")
            return
        for offload, on in interface.offloads.items():
            for feature in FEATURES[offload]:
                parameter, value = (
                    ("offload", device, SHORT_NAMES.get(feature, feature)),
                    "on" if on else "off",
                )
                if parameter in machine.current and parameter not in machine.fixed:
                    self._add(source, parameter, value)
                elif machine.current.get(parameter) != value:
                    self._note(f"{shown} does not support {feature}")
        for direction, size in interface.rings.items():
            parameter = "ring", device, direction
            if parameter in machine.largest:
                self._add(source, parameter, str(min(size, machine.largest[parameter])))
            else:
                self._note(f"{shown} has no {direction} ring whose size can be set")


def plan(
    names: Sequence[str], lines: Sequence[str], folder: str = FOLDER, interface: Interface | None = None
) -> TuningPlan:
    """Plan the settings of tuning sets on a machine.

    Settings of an earlier deploy that no set contains any more are restored. If two sets differ, the later one
    takes precedence.

    `lines` is the output of `facts_script`, without `tuning<tab>`. The original values are kept in `folder`; only
    settings in FOLDER are applied again at each boot. `interface` has settings in addition to those of the sets.
    """
    machine = _parse(lines)
    supported = _Supported(machine)
    for name in names:
        supported.add_set(name)
    if interface is not None:
        supported.add_interface("the experiment", interface)
    settings, notes, current = supported.settings, tuple(supported.notes), machine.current
    # Settings of a removed network card cannot be restored.
    restored = {key: value for key, value in machine.former.items() if key not in settings and key in current}
    changes = [
        f"{_described(key)}: {current[key]} → {value}"
        for key, value in settings.items()
        if current[key] != value
    ]
    changes += [f"{_described(key)}: restore {value}" for key, value in restored.items()]
    if not settings:
        if not machine.former and not machine.applied:
            return TuningPlan(notes=notes)
        return TuningPlan(tuple(changes or ["delete the saved settings"]), undo_script(folder), notes)
    apply = "".join(_command(*setting) for setting in settings.items())
    if not changes and sha256(apply) == machine.applied:
        return TuningPlan(notes=notes)
    former = {key: machine.former.get(key, current[key]) for key in settings}
    # It saves the original values before it changes anything; settings to restore are kept until they are restored.
    script = shell(
        "tuning_apply",
        FOLDER=folder,
        BOOT=shell("tuning_boot", FOLDER=folder, UNIT=UNIT) if folder == FOLDER else "",
        BEFORE=_kept(former | restored),
        AFTER=_kept(former),
        RESTORE="".join(_command(*setting) for setting in restored.items()),
        APPLY=apply,
    )
    return TuningPlan(tuple(changes or ["apply the settings again at each boot"]), script, notes)


def undo_script(folder: str = FOLDER) -> str:
    """Return a script that restores the original settings as root, prints them, and deletes the saved values.

    On a machine without saved values it does nothing. If a setting cannot be restored, the script prints it,
    keeps the saved values and exits with 1.
    """
    boot = shell("tuning_no_boot", UNIT=UNIT) if folder == FOLDER else ""
    return shell("tuning_undo", FOLDER=folder, BOOT=boot)
