"""Tuning sets (deploy/tuning/*.yaml): what a machine has → what to set on it, and how to undo it.

What was there before is kept on the machine, in FOLDER, from before the first change until it is put back.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from k8sdds.system import yaml_text
from k8sdds.system.shipped import ShippedFiles
from k8sdds.system.strict import Strict

FOLDER = "/etc/k8sdds/tuning"
UNIT = "k8sdds-tuning.service"
FEATURES = {"gro": "generic-receive-offload", "tso": "tcp-segmentation-offload"}
"""What ethtool calls offloads."""
SETS = ShippedFiles("deploy/tuning", "tuning set")

_KEY = r"^[a-z0-9_]+(\.[a-z0-9_-]+)+$"
_VALUE = r"^[0-9A-Za-z_]+( [0-9A-Za-z_]+)*$"


class Interface(Strict):
    """Settings of a network interface."""

    offloads: dict[Literal["gro", "tso"], bool] = Field(default={})
    rings: dict[Literal["rx", "tx"], int] = Field(default={})


class TuningSet(Strict):
    """One file of deploy/tuning."""

    title: str
    source: str
    sysctls: dict[str, int | str] = Field(default={})
    interface: Interface = Interface()


@dataclass(frozen=True)
class Setting:
    """One knob: `sysctl KEY`, `offload DEVICE NAME` or `ring DEVICE NAME`, and a value for it."""

    kind: str
    where: str
    name: str
    value: str

    @property
    def knob(self) -> tuple[str, str, str]:
        """What is set, whatever its value."""
        return self.kind, self.where, self.name

    @property
    def describe(self) -> str:
        """As people say it: `eth0 rings: rx`."""
        return self.where if self.kind == "sysctl" else f"{self.where} {self.kind} {self.name}"

    @property
    def command(self) -> str:
        """The command that sets it."""
        if self.kind == "sysctl":
            return f"sysctl -qw {self.where}={shlex.quote(self.value)}"
        if self.kind == "ring":
            return f"ethtool -G {self.where} {self.name} {self.value}"
        return f"ethtool -K {self.where} {self.name} {self.value}"

    @property
    def line(self) -> str:
        """As it is kept on the machine: `-` for no name."""
        return f"{self.kind} {self.where} {self.name or '-'} {self.value}"


@dataclass(frozen=True)
class Tuned:
    """What tuning a machine takes."""

    changes: tuple[str, ...] = ()
    """One line each, for people; none: nothing is to be done."""
    script: str = ""
    """Run as root, it makes them; empty if there are none."""
    notes: tuple[str, ...] = ()
    """What the machine has no knob for, and so stays as it is."""


def load(name: str) -> TuningSet:
    """A set by its name. Raises InputError."""
    path, text = SETS.read(name)
    return yaml_text.parse(text, TuningSet, str(path))


# Lines `tuning<tab>…`: what is set now, what can be set, and what an earlier deploy found and did.
_FACTS = r"""
(
for key in $KEYS $(awk '$1 == "sysctl" { print $2 }' $FOLDER/former 2>/dev/null); do
  knob=/proc/sys/$(echo "$key" | tr . /)
  if [ ! -e "$knob" ]; then state=none
  # A local node has files of its own in place of what belongs to the whole kernel.
  elif [ "$(stat -f -c %T "$knob")" != proc ]; then state=shadowed
  elif [ -w "$knob" ]; then state=free; else state=fixed; fi
  printf 'tuning\tsysctl %s %s %s\n' "$key" $state "$(tr -s '\t' ' ' <"$knob" 2>/dev/null)"
done
if [ -z "$DEVICE" ]; then
  DEVICE=$(ip -4 route show default 2>/dev/null | sed -n '1s/.* dev \([^ ]*\).*/\1/p')
fi
printf 'tuning\tdevice %s\n' "$DEVICE"
for device in $DEVICE $(awk '$1 != "sysctl" { print $2 }' $FOLDER/former 2>/dev/null | sort -u); do
  [ -e "/sys/class/net/$device" ] || continue
  if ! command -v ethtool >/dev/null 2>&1; then printf 'tuning\tethtool none\n'; break; fi
  ethtool -k "$device" 2>/dev/null | awk -v device="$device" '
    $1 == "generic-receive-offload:" { print "tuning\toffload " device " gro " $2 " " $3 }
    $1 == "tcp-segmentation-offload:" { print "tuning\toffload " device " tso " $2 " " $3 }'
  ethtool -g "$device" 2>/dev/null | awk -v device="$device" '
    BEGIN { directions["RX:"] = "rx"; directions["TX:"] = "tx" }
    /maximums/ { part = "most" } /Current/ { part = "now" }
    $1 == "RX:" || $1 == "TX:" { value[part, $1] = $2 }
    END {
      for (way in directions)
        if (value["most", way] ~ /^[1-9]/)
          print "tuning\tring " device " " directions[way] " " value["now", way] " " value["most", way]
    }'
done
[ -f $FOLDER/former ] && sed 's/^/tuning\tformer /' $FOLDER/former
[ -f $FOLDER/apply ] && printf 'tuning\tapply %s\n' "$(sha256sum <$FOLDER/apply | cut -c1-64)"
:
)
"""


def facts_script(names: Sequence[str], interface: str | None = None) -> str:
    """What looks at a machine for these sets: shell lines to be added to a probe.

    `interface` is that between the nodes; without, that of the default route.
    """
    keys = sorted({key for name in names for key in load(name).sysctls})
    return f"KEYS='{' '.join(keys)}'\nDEVICE='{interface or ''}'\nFOLDER={FOLDER}\n{_FACTS}"


@dataclass(frozen=True)
class _Found:
    """The machine's answers."""

    now: dict[tuple[str, str, str], str]
    state: dict[str, str]
    """Of each sysctl."""
    most: dict[tuple[str, str], int]
    """The largest ring, by device and direction."""
    fixed: frozenset[tuple[str, str, str]]
    device: str
    ethtool: bool
    former: dict[tuple[str, str, str], Setting]
    apply: str


def _read(lines: Sequence[str]) -> _Found:
    now, state, most, fixed, former = {}, {}, {}, set(), {}
    device, ethtool, apply = "", True, ""
    for line in lines:
        kind, _, rest = line.partition(" ")
        words = rest.split(" ")
        if kind == "sysctl":
            state[words[0]] = words[1]
            now["sysctl", words[0], ""] = " ".join(words[2:])
        elif kind == "offload":
            now["offload", words[0], words[1]] = words[2]
            # `off [requested on]`: it was tried, and the card would not.
            if words[3:] and words[3] in ("[fixed]", "[requested"):
                fixed.add(("offload", words[0], words[1]))
        elif kind == "ring":
            now["ring", words[0], words[1]] = words[2]
            most[words[0], words[1]] = int(words[3])
        elif kind == "device":
            device = words[0]
        elif kind == "ethtool":
            ethtool = False
        elif kind == "apply":
            apply = words[0]
        elif kind == "former" and len(words) >= 4:
            name = "" if words[2] == "-" else words[2]
            setting = Setting(words[0], words[1], name, " ".join(words[3:]))
            former[setting.knob] = setting
    return _Found(now, state, most, frozenset(fixed), device, ethtool, former, apply)


def plan(names: Sequence[str], lines: Sequence[str]) -> Tuned:
    """What makes a machine as these sets want it, from what `facts_script` printed (without `tuning<tab>`).

    What an earlier deploy set and these sets do not is put back. Where two sets differ the later one counts.
    """
    found = _read(lines)
    wanted, notes = _wanted(names, found)
    # A card that is not there any more has nothing to be put back.
    back = [one for knob, one in found.former.items() if knob not in wanted and knob in found.now]
    changes = [
        f"{setting.describe}: {found.now.get(setting.knob, '?')} → {setting.value}"
        for setting in wanted.values()
        if found.now[setting.knob] != setting.value
    ]
    changes += [f"{setting.describe}: back to {setting.value}" for setting in back]
    apply = "".join(f"{setting.command}\n" for setting in wanted.values())
    if not wanted:
        if not found.former and not found.apply:
            return Tuned(notes=tuple(notes))
        return Tuned(tuple(changes or ["what was tuned is forgotten"]), undo_script(), tuple(notes))
    if not changes and hashlib.sha256(apply.encode()).hexdigest() == found.apply:
        return Tuned(notes=tuple(notes))
    former = [found.former.get(knob, Setting(*knob, value=found.now[knob])).line for knob in wanted]
    # What is put back stays known until it is.
    script = _APPLY.format(
        folder=FOLDER,
        unit=UNIT,
        before="\n".join([*former, *(setting.line for setting in back)]),
        after="\n".join(former),
        back="\n".join(setting.command for setting in back),
        apply=apply,
    )
    return Tuned(tuple(changes or ["the settings are kept for the next boot"]), script, tuple(notes))


def _wanted(names: Sequence[str], found: _Found) -> tuple[dict[tuple[str, str, str], Setting], list[str]]:
    """The settings that this machine has a knob for, and notes on the others."""
    wanted: dict[tuple[str, str, str], Setting] = {}
    notes: dict[str, None] = {}
    for name in names:
        one = load(name)
        for key, value in one.sysctls.items():
            state = found.state.get(key, "none")
            if state == "free":
                _add(wanted, notes, name, Setting("sysctl", key, "", str(value)))
            elif found.now.get(("sysctl", key, "")) != str(value):
                notes[_no_sysctl(key, state, found.now.get(("sysctl", key, ""), ""), str(value))] = None
        for offload, on in one.interface.offloads.items():
            setting = Setting("offload", found.device, offload, "on" if on else "off")
            if setting.knob in found.now and setting.knob not in found.fixed:
                _add(wanted, notes, name, setting)
            elif found.now.get(setting.knob) != setting.value and found.ethtool:
                notes[f"{found.device or 'no interface'} cannot do {FEATURES[offload]}"] = None
        for direction, size in one.interface.rings.items():
            largest = found.most.get((found.device, direction))
            if largest is not None:
                _add(wanted, notes, name, Setting("ring", found.device, direction, str(min(size, largest))))
            elif found.ethtool:
                notes[f"{found.device or 'no interface'} has no {direction} ring to size"] = None
        if (one.interface.offloads or one.interface.rings) and not found.ethtool:
            notes[f"{name}: ethtool is not installed: rings and offloads stay as they are"] = None
    return wanted, list(notes)


def _add(
    wanted: dict[tuple[str, str, str], Setting], notes: dict[str, None], name: str, setting: Setting
) -> None:
    other = wanted.get(setting.knob)
    if other is not None and other.value != setting.value:
        notes[f"{setting.describe}: {name} wants {setting.value}, not {other.value}; it comes later"] = None
    wanted[setting.knob] = setting


def _no_sysctl(key: str, state: str, now: str, value: str) -> str:
    if state == "none":
        return f"{key} is not there (a local node lacks what belongs to the whole kernel)"
    return (
        f"{key} stays {now}, not {value}: it belongs to the whole kernel, which a local node shares;"
        f" on this machine itself: sysctl -w {key}='{value}'"
    )


# What was there is written down before anything is changed. The unit sets all again at each boot.
_APPLY = """\
(
set -eu
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
umask 022
mkdir -p {folder}
keep() {{ cat >{folder}/new; mv {folder}/new "{folder}/$1"; }}
keep former <<'END_OF_FORMER'
{before}
END_OF_FORMER
keep apply <<'END_OF_APPLY'
{apply}END_OF_APPLY
cat >/etc/systemd/system/{unit} <<'END_OF_UNIT'
[Unit]
Description=Settings of the operating system that k8sdds deploy made
After=network.target systemd-sysctl.service
Before=kubelet.service

[Service]
Type=oneshot
ExecStart=/bin/sh {folder}/apply

[Install]
WantedBy=multi-user.target
END_OF_UNIT
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -sf ../{unit} /etc/systemd/system/multi-user.target.wants/{unit}
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
{back}
sh -e {folder}/apply
keep former <<'END_OF_FORMER'
{after}
END_OF_FORMER
)
"""

_UNDO = """\
(
set -u
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
[ -d {folder} ] || exit 0
left=0
back() {{
  what=$1; shift
  if said=$("$@" 2>&1); then echo "$what"; else echo "$what: $said" >&2; left=1; fi
}}
if [ -f {folder}/former ]; then
  while read -r kind where name value; do
    case $kind in
      sysctl) back "$where = $value" sysctl -qw "$where=$value" ;;
      ring) set -- ethtool -G ;;
      offload) set -- ethtool -K ;;
    esac
    # A card that is not there any more has nothing to be put back.
    [ "$kind" = sysctl ] || [ ! -e "/sys/class/net/$where" ] ||
      back "$where $kind $name $value" "$@" "$where" "$name" "$value"
  done <{folder}/former
fi
[ $left = 0 ] || exit 1
rm -f /etc/systemd/system/{unit} /etc/systemd/system/multi-user.target.wants/{unit}
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
rm -rf {folder}
)
"""


def undo_script() -> str:
    """A root script that puts back what was there before, prints what it put back, and forgets it.

    Where nothing was tuned it does nothing. Where something cannot be put back it says what, ends with 1 and
    keeps what it knows.
    """
    return _UNDO.format(folder=FOLDER, unit=UNIT)
