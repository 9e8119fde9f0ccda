"""Derive settings from the names of folders and files. Settings in the logs take precedence."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from k8sdds.model.trial import PUBLISHER, SHORT_ROLES, SUBSCRIBER, Participant, Role
from k8sdds.networks import published_names
from k8sdds.workloads import WORKLOADS

K8SDDS, AUTO = "k8sdds", "auto"
LAYOUTS = (AUTO, K8SDDS)

ROWS = (64, 256, 1024, 4096, 16384, 63000)
"""Payloads of `test-0` to `test-5` in the artifact of the K8sDDS paper. Later rows have no fixed payload."""

_NAMES = published_names()

_TESTS = {spelling: name for name in WORKLOADS for spelling in (name, f"{name}test")}
_RELIABILITIES = {"besteffort": "best-effort", "best-effort": "best-effort", "reliable": "reliable"}
_TRANSPORTS = {"multicast": "multicast", "unicast": "unicast"}
_BACKUP = re.compile(r"(?:bk|bak|backup)(?:[^a-z].*)?|old")
"""Name of a folder with backups, such as `bk`, `bk1` or `bk-datalen`."""
_REPETITION = re.compile(r"(?:run|rep|repeat|repetition|iter|iteration|trial|round)[-_]?([0-9]{1,4})")
_ROW = re.compile(r"test-([0-9]{1,3})(?:-(.+))?")
_PAYLOAD = re.compile(r"([0-9]{1,9})(?:b|bytes)|(?:payload|size|len|datalen)[-_=]?([0-9]{1,9})")
_SUBSCRIBERS = re.compile(r"([0-9]{1,3})(?:sub|subs|subscribers)")
_PARTICIPANT = re.compile(r"(?<![a-z])(pub|sub|publisher|subscriber)[-_]?([0-9]{0,3})(?![a-z0-9])")


@dataclass(frozen=True)
class Hints:
    """Settings that the path of a log suggests. None means that the path does not suggest a value."""

    values: dict[str, Any] = field(default_factory=dict)
    """Values by key of trials.jsonl: network, test, payload_bytes, reliability, transport, repetition, …"""
    set_aside: str | None = None
    """The name that marks the log as a backup."""
    variant: str | None = None
    """A setting that logs do not contain, such as `sendQueueSize=50`."""
    experiment: str | None = None
    keep: bool = False
    """Whether the user includes the log although it is a backup."""

    def with_user_settings(self, values: dict[str, Any]) -> Hints:
        """Return the hints, updated with the values that the user specified."""
        merged = {**self.values, **values}
        keep = merged.pop("keep", None)
        return replace(self, values=merged, keep=bool(keep))


def detect(paths: list[PurePosixPath]) -> str:
    """Detect the layout of a tree from its paths: `k8sdds` if row folders lie below test folders, otherwise `auto`."""
    for path in paths:
        names = [part.lower() for part in path.parts[:-1]]
        if names and _ROW.fullmatch(names[-1]) and any(_TESTS.get(name) for name in names):
            return K8SDDS
    return AUTO


def hints(folder: PurePosixPath, stem: str, layout: str) -> Hints:
    """Return the settings suggested by a folder's path (relative to the imported folder) and a file stem."""
    values: dict[str, Any] = {}
    aside = variant = experiment = None
    for name in (*folder.parts, *([stem] if stem else [])):
        lower = name.lower()
        if layout == K8SDDS and (row := _ROW.fullmatch(lower)):
            number, suffix = int(row[1]), name[len(f"test-{row[1]}") :].lstrip("-")
            if number < len(ROWS):
                values["payload_bytes"] = ROWS[number]
            if _BACKUP.fullmatch(suffix.lower()):
                aside = name
            elif suffix:
                variant = suffix
        elif _BACKUP.fullmatch(lower):
            aside = name
        elif (known := _settings(lower, whole=True)) or (layout == AUTO and (known := _settings(lower))):
            values |= known
            if layout == K8SDDS and lower in _RELIABILITIES:
                experiment = name
        elif layout == K8SDDS and "test" not in values and experiment is None:
            experiment = name
        elif layout == K8SDDS:
            values |= _network_and_transport(lower) or {"network": lower}
    if layout == AUTO and "network" not in values:
        lower_names = [(part, part.lower()) for part in folder.parts]
        unknown = [
            part for part, lower in lower_names if not _settings(lower) and not _BACKUP.fullmatch(lower)
        ]
        if unknown:
            values["network"] = unknown[-1]
    return Hints(values, aside, variant, experiment)


def group(name: str) -> tuple[str, Participant | None]:
    """Split a file name into the part that all files of a trial share, and the participant.

    For example, `run1_sub0.log` becomes `("run1", Participant("subscriber", 0))`.
    """
    stem = name.rsplit(".", 1)[0] if "." in name else name
    match = _PARTICIPANT.search(stem.lower())
    if not match:
        return stem, None
    rest = (stem[: match.start()] + stem[match.end() :]).strip("-_. ")
    role: Role = PUBLISHER if match[1].startswith(SHORT_ROLES[PUBLISHER]) else SUBSCRIBER
    return rest, Participant(role, int(match[2] or 0))


def _settings(name: str, whole: bool = False) -> dict[str, Any]:
    """Return the settings that a name specifies as a whole or, unless `whole` is set, in its parts."""
    settings: dict[str, Any] = {}
    if network := _NAMES.get(name.removesuffix("-udp").removesuffix("-tcp")):
        return {"network": network}
    for key, terms in (("test", _TESTS), ("reliability", _RELIABILITIES), ("transport", _TRANSPORTS)):
        if name in terms:
            return {key: terms[name]}
    if match := _REPETITION.fullmatch(name):
        return {"repetition": max(int(match[1]) - 1, 0)}
    if match := _PAYLOAD.fullmatch(name):
        return {"payload_bytes": int(match[1] or match[2])}
    if match := _SUBSCRIBERS.fullmatch(name):
        return {"subscribers": int(match[1])}
    if whole:
        return {}
    # Longest network name first: flannel-vxlan before vxlan.
    for alias in sorted(_NAMES, key=len, reverse=True):
        if re.search(rf"(?<![a-z0-9]){re.escape(alias)}(?![a-z0-9])", name):
            settings["network"] = _NAMES[alias]
            name = name.replace(alias, " ")
            break
    for part in re.split(r"[_. ]+|(?<=[a-z0-9])-(?=[a-z0-9])", name):
        if part:
            settings = {**_settings(part, whole=True), **settings}
    return settings


def _network_and_transport(name: str) -> dict[str, Any]:
    """Return the settings of a name such as `hostnetwork-multicast-udp`, or {}."""
    network, _, transport = name.removesuffix("-udp").removesuffix("-tcp").rpartition("-")
    if network in _NAMES and transport in _TRANSPORTS:
        return {"network": _NAMES[network], "transport": _TRANSPORTS[transport]}
    return {}
