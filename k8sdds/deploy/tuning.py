"""Plan the settings of tuning sets (deploy/tuning/*.yaml) on a machine, and restore the original ones.

The original values are kept in FOLDER on the machine, from before the first change until they are restored. Those of
an experiment, which tunes nodes for some of its trials, are kept in EXPERIMENT_FOLDER. They do not survive a reboot.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

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


@dataclass(frozen=True)
class Setting:
    """A value for one parameter: `sysctl KEY`, `mtu DEVICE`, `offload DEVICE NAME` or `ring DEVICE NAME`."""

    kind: str
    """`sysctl`, `mtu`, `offload` or `ring`."""
    where: str
    """The sysctl's key, or the device."""
    name: str
    """Name of the offload or ring; empty for others."""
    value: str

    @property
    def parameter(self) -> tuple[str, str, str]:
        """The parameter, without its value."""
        return self.kind, self.where, self.name

    @property
    def description(self) -> str:
        """Description for the user: `eth0 ring rx`."""
        return self.where if self.kind == "sysctl" else f"{self.where} {self.kind} {self.name}".rstrip()

    @property
    def command(self) -> str:
        """The command that applies the setting."""
        if self.kind == "sysctl":
            return f"sysctl -qw {self.where}={shlex.quote(self.value)}"
        if self.kind == "mtu":
            return f"ip link set dev {self.where} mtu {self.value}"
        if self.kind == "ring":
            return f"ethtool -G {self.where} {self.name} {self.value}"
        return f"ethtool -K {self.where} {self.name} {self.value}"

    @property
    def line(self) -> str:
        """The setting as it is kept on the machine, with `-` for an empty name."""
        return f"{self.kind} {self.where} {self.name or '-'} {self.value}"


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


Parameter = tuple[str, str, str]


class _TuningFacts:
    """The parsed facts of a machine."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.current: dict[Parameter, str] = {}
        self.state: dict[str, str] = {}
        """By sysctl: free, fixed, shadowed or none."""
        self.max_ring: dict[tuple[str, str], int] = {}
        """Maximum ring size by device and direction."""
        self.max_mtu: dict[str, int] = {}
        """Maximum MTU by device."""
        self.fixed: set[Parameter] = set()
        self.former: dict[Parameter, Setting] = {}
        self.device = self.apply = ""
        self.ethtool = True
        for line in lines:
            kind, *fields = line.split(" ")
            self._add(kind, fields)

    def _add(self, kind: str, fields: Sequence[str]) -> None:
        match kind:
            case "sysctl":
                self.state[fields[0]] = fields[1]
                self.current["sysctl", fields[0], ""] = " ".join(fields[2:])
            case "offload":
                self.current["offload", fields[0], fields[1]] = fields[2]
                # `off [requested on]`: the driver refused the change.
                if fields[3:] and fields[3] in ("[fixed]", "[requested"):
                    self.fixed.add(("offload", fields[0], fields[1]))
            case "ring":
                self.current["ring", fields[0], fields[1]] = fields[2]
                self.max_ring[fields[0], fields[1]] = int(fields[3])
            case "mtu":
                self.current["mtu", fields[0], ""] = fields[2]
                # Earlier kernels do not report a maximum.
                self.max_mtu[fields[0]] = int(fields[3] if fields[3].isdigit() else fields[2])
            case "device":
                self.device = fields[0]
            case "ethtool":
                self.ethtool = False
            case "apply":
                self.apply = fields[0]
            case "former" if len(fields) >= 4:
                name = "" if fields[2] == "-" else fields[2]
                setting = Setting(fields[0], fields[1], name, " ".join(fields[3:]))
                self.former[setting.parameter] = setting


class _Supported:
    """The settings of tuning sets that a machine supports, by parameter, and notes on the others."""

    def __init__(self, facts: _TuningFacts) -> None:
        self.facts = facts
        self.settings: dict[Parameter, Setting] = {}
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    def _note(self, text: str) -> None:
        self._notes[text] = None

    def _add(self, source: str, setting: Setting) -> None:
        other = self.settings.get(setting.parameter)
        if other is not None and other.value != setting.value:
            self._note(
                f"{setting.description}: {source} sets {setting.value} instead of {other.value}, and takes precedence"
            )
        self.settings[setting.parameter] = setting

    def add_set(self, name: str) -> None:
        tuning_set, facts = load(name), self.facts
        for key, value in tuning_set.sysctls.items():
            state, now = facts.state.get(key, "none"), facts.current.get(("sysctl", key, ""), "")
            if state == "free":
                self._add(name, Setting("sysctl", key, "", str(value)))
            elif state == "none":
                self._note(f"{key} does not exist (a local node does not have settings of the whole kernel)")
            elif now != str(value):
                self._note(
                    f"{key} stays {now}, not {value}: it belongs to the whole kernel, which local nodes share;"
                    f" on their host, run: sysctl -w {key}='{value}'"
                )
        self.add_interface(name, tuning_set.interface)

    def add_interface(self, name: str, interface: Interface) -> None:
        """Add the settings of the interface between the nodes."""
        facts, device = self.facts, self.facts.device or "no interface"
        if interface.mtu is not None:
            largest = facts.max_mtu.get(facts.device, 0)
            if interface.mtu <= largest:
                self._add(name, Setting("mtu", facts.device, "", str(interface.mtu)))
            else:
                self._note(f"{device} has an MTU of at most {largest} bytes")
        if (interface.offloads or interface.rings) and not facts.ethtool:
            self._note(f"{name}: ethtool is not installed: rings and offloads are not changed")
            return
        for offload, on in interface.offloads.items():
            for feature in FEATURES[offload]:
                short = SHORT_NAMES.get(feature, feature)
                setting = Setting("offload", facts.device, short, "on" if on else "off")
                if setting.parameter in facts.current and setting.parameter not in facts.fixed:
                    self._add(name, setting)
                elif facts.current.get(setting.parameter) != setting.value:
                    self._note(f"{device} does not support {feature}")
        for direction, size in interface.rings.items():
            most = facts.max_ring.get((facts.device, direction))
            if most is not None:
                self._add(name, Setting("ring", facts.device, direction, str(min(size, most))))
            else:
                self._note(f"{device} has no {direction} ring whose size can be set")


def plan(
    names: Sequence[str], lines: Sequence[str], folder: str = FOLDER, interface: Interface | None = None
) -> TuningPlan:
    """Plan the settings of tuning sets on a machine.

    Settings of an earlier deploy that no set contains any more are restored. If two sets differ, the later one
    takes precedence.

    `lines` is the output of `facts_script`, without `tuning<tab>`. The original values are kept in `folder`; only
    settings in FOLDER are applied again at each boot. `interface` has settings in addition to those of the sets.
    """
    facts = _TuningFacts(lines)
    supported = _Supported(facts)
    for name in names:
        supported.add_set(name)
    if interface is not None:
        supported.add_interface("the experiment", interface)
    settings, notes = supported.settings, supported.notes
    # Settings of a removed network card cannot be restored.
    restored = [
        setting
        for parameter, setting in facts.former.items()
        if parameter not in settings and parameter in facts.current
    ]
    changes = [
        f"{setting.description}: {facts.current.get(setting.parameter, '?')} → {setting.value}"
        for setting in settings.values()
        if facts.current[setting.parameter] != setting.value
    ]
    changes += [f"{setting.description}: restore {setting.value}" for setting in restored]
    apply = "".join(f"{setting.command}\n" for setting in settings.values())
    if not settings:
        if not facts.former and not facts.apply:
            return TuningPlan(notes=notes)
        return TuningPlan(tuple(changes or ["delete the saved settings"]), undo_script(folder), notes)
    if not changes and hashlib.sha256(apply.encode()).hexdigest() == facts.apply:
        return TuningPlan(notes=notes)
    former = [
        facts.former.get(parameter, Setting(*parameter, value=facts.current[parameter])).line
        for parameter in settings
    ]
    script = _apply_script(folder, apply, former, restored)
    return TuningPlan(tuple(changes or ["apply the settings again at each boot"]), script, notes)


def _apply_script(folder: str, apply: str, former: Sequence[str], restored: Sequence[Setting]) -> str:
    # It saves the original values before it changes anything; settings to restore are kept until they are restored.
    return shell(
        "tuning_apply",
        FOLDER=folder,
        BOOT=shell("tuning_boot", FOLDER=folder, UNIT=UNIT) if folder == FOLDER else "",
        BEFORE="\n".join([*former, *(setting.line for setting in restored)]),
        AFTER="\n".join(former),
        RESTORE="\n".join(setting.command for setting in restored),
        APPLY=apply,
    )


def undo_script(folder: str = FOLDER) -> str:
    """Return a script that restores the original settings as root, prints them, and deletes the saved values.

    On a machine without saved values it does nothing. If a setting cannot be restored, the script prints it,
    keeps the saved values and exits with 1.
    """
    boot = shell("tuning_no_boot", UNIT=UNIT) if folder == FOLDER else ""
    return shell("tuning_undo", FOLDER=folder, BOOT=boot)
