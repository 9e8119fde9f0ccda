"""Write the files with which an application uses its recommended configuration.

`confirm.yaml` measures the configuration with these files: `k8sdds run FOLDER/confirm.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from k8sdds.campaign import applications, expansion, trial_length
from k8sdds.deploy import tuning
from k8sdds.model.application import Application, Flow
from k8sdds.model.message_size import LONGEST_MESSAGE_BYTES, USUAL_MESSAGE_BYTES
from k8sdds.model.settings import NO_TUNING
from k8sdds.networks import NETWORKS, label_without_engine
from k8sdds.recommend.answer import Answer, Ranked
from k8sdds.system import yaml_text
from k8sdds.system.faults import explained
from k8sdds.system.files import write_atomically
from k8sdds.system.paths import shared

FOLDER = "configuration"
"""Name of the folder."""
RECEIVE_BUFFER_BYTES = 8 * 1024 * 1024
"""What k8sdds-perftest requests for sockets, with both middlewares."""
MESSAGE_BYTES = {"auto": USUAL_MESSAGE_BYTES, "max": LONGEST_MESSAGE_BYTES}
CYCLONE_FRAGMENT_BYTES, CYCLONE_RETRANSMIT_BYTES = 1344, 1456
"""Defaults of Cyclone DDS."""
UDP_HEADERS = 28
MIN_CPU_MILLI = 10


@dataclass(frozen=True)
class ReadyFile:
    """A file, and what it is for."""

    name: str
    purpose: str
    text: str


def write(answer: Answer, folder: Path) -> list[Path]:
    """Write the files of the first configuration and return their paths, README.md first; none without one.

    Raises:
        InputError: The files cannot be written.
    """
    files = ready_files(answer)
    with explained(f"cannot write to {folder}", "choose another folder: --output"):
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            (folder / file.name).parent.mkdir(exist_ok=True)
            write_atomically(folder / file.name, file.text)
    return [folder / file.name for file in files]


def ready_files(answer: Answer) -> list[ReadyFile]:
    """Return the files of the first configuration, README.md first; none if nothing was measured."""
    best, application = answer.recommended, answer.evidence.application
    if best is None:
        return []
    choices = best.option.choices
    files = [
        *_middleware_files(application, choices),
        *(_qos_file(flow, choices) for flow in application.flows),
        _network_file(choices),
        _sysctl_file(choices),
        _pod_file(application, best),
        _confirm_file(application, choices),
    ]
    role, verdict = answer.role.capitalize(), best.verdict
    lines = [f"# Configuration of {application.name}", "", f"{role}: {best.option.describe()}.", ""]
    lines.append(f"Its requirements: {verdict}. The evidence is in ../recommendation.html.")
    lines += [
        "",
        "| file | purpose |",
        "|---|---|",
        *(f"| `{file.name}` | {file.purpose} |" for file in files),
    ]
    return [ReadyFile("README.md", "what to do with these files", "\n".join(lines) + "\n"), *files]


def message_bytes(choices: Mapping[str, Any]) -> int | None:
    """Return the largest message of a configuration in bytes; None: the middleware's default."""
    size = choices["message_bytes"]
    text = str(size)
    if text == "mtu":
        network = NETWORKS.get(label_without_engine(str(choices["network"])))
        return (network.default_mtu if network else 1500) - UDP_HEADERS
    if text.isdecimal():
        return int(text)
    return MESSAGE_BYTES.get(text)


def _middleware_files(application: Application, choices: Mapping[str, Any]) -> list[ReadyFile]:
    match choices["middleware"]:
        case "cyclonedds":
            variable = "Cyclone DDS: set `CYCLONEDDS_URI=file:///…/cyclonedds.xml`"
            whole = cyclonedds_xml(choices)
            measured = f'<CycloneDDS>\n  <Domain Id="any">\n{_cyclone_internal()}  </Domain>\n</CycloneDDS>\n'
        case "fastdds":
            old = "`FASTRTPS_DEFAULT_PROFILES_FILE`"
            variable = f"Fast DDS: set `FASTDDS_DEFAULT_PROFILES_FILE` (before version 3: {old})"
            whole, measured = fastdds_xml(application, choices), _fastdds_measured()
        case _:
            return []
    part = "the part of it that `middleware_config` of an experiment may set; `confirm.yaml` sets the rest"
    name = f"{choices['middleware']}.xml"
    return [ReadyFile(name, variable, whole), ReadyFile(f"measured/{name}", part, measured)]


def cyclonedds_xml(choices: Mapping[str, Any]) -> str:
    """Return the configuration of Cyclone DDS that corresponds to what was measured."""
    multicast = choices["transport"] == "multicast"
    carries = NETWORKS.get(label_without_engine(str(choices["network"])))
    # Discovery by multicast needs a network that carries it; the measured participants knew each other's addresses.
    allowed = "true" if multicast else "spdp" if carries is not None and carries.multicast else "false"
    general = [f"      <AllowMulticast>{allowed}</AllowMulticast>"]
    if (size := message_bytes(choices)) is not None:
        fragment = min(CYCLONE_FRAGMENT_BYTES, (size - 84) & ~3)
        general += [
            f"      <MaxMessageSize>{size} B</MaxMessageSize>",
            f"      <FragmentSize>{fragment} B</FragmentSize>",
            f"      <MaxRexmitMessageSize>{min(CYCLONE_RETRANSMIT_BYTES, size)} B</MaxRexmitMessageSize>",
        ]
    peers = (
        "      <!-- This network carries no multicast: name the addresses of the other participants.\n"
        '      <Peers><Peer Address="192.0.2.10"/></Peers> -->\n'
        if allowed == "false"
        else ""
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<CycloneDDS>\n  <Domain Id="any">\n    <General>\n'
        + "\n".join(general)
        + "\n    </General>\n    <Discovery>\n      <ParticipantIndex>auto</ParticipantIndex>\n"
        + peers
        + f"    </Discovery>\n{_cyclone_internal()}  </Domain>\n</CycloneDDS>\n"
    )


def _cyclone_internal() -> str:
    return (
        "    <Internal>\n"
        f'      <SocketReceiveBufferSize min="default" max="{RECEIVE_BUFFER_BYTES >> 20} MiB"/>\n'
        "    </Internal>\n"
    )


def fastdds_xml(application: Application, choices: Mapping[str, Any]) -> str:
    """Return the profiles of Fast DDS that correspond to what was measured."""
    size = message_bytes(choices)
    length = f"        <maxMessageSize>{size}</maxMessageSize>\n" if size is not None else ""
    reliable = any(_reliability(flow, choices) == "reliable" for flow in application.flows)
    kind = "RELIABLE" if reliable else "BEST_EFFORT"
    multicast = (
        "          <multicastLocatorList><locator><udpv4><address>239.255.0.2</address></udpv4></locator>"
        "</multicastLocatorList>\n"
        if choices["transport"] == "multicast"
        else ""
    )
    multicast_reader = f"    <!-- Receive samples by multicast. -->\n{multicast}" if multicast else ""
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<profiles xmlns="http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles">\n'
        "    <transport_descriptors>\n      <transport_descriptor>\n"
        "        <transport_id>udp</transport_id>\n        <type>UDPv4</type>\n"
        f"        <sendBufferSize>{max(131_072, size or 0)}</sendBufferSize>\n"
        f"        <receiveBufferSize>{RECEIVE_BUFFER_BYTES}</receiveBufferSize>\n{length}"
        "      </transport_descriptor>\n    </transport_descriptors>\n"
        '    <participant profile_name="participant" is_default_profile="true">\n      <rtps>\n'
        "        <useBuiltinTransports>false</useBuiltinTransports>\n"
        "        <userTransports><transport_id>udp</transport_id></userTransports>\n"
        "      </rtps>\n    </participant>\n"
        f'    <data_writer profile_name="writer" is_default_profile="true">\n'
        f"      <qos>\n        <reliability><kind>{kind}</kind></reliability>\n"
        "        <publishMode><kind>SYNCHRONOUS</kind></publishMode>\n      </qos>\n"
        f"{_FASTDDS_TIMES}"
        "      <historyMemoryPolicy>PREALLOCATED_WITH_REALLOC</historyMemoryPolicy>\n    </data_writer>\n"
        '    <data_reader profile_name="reader" is_default_profile="true">\n'
        f"      <qos>\n        <reliability><kind>{kind}</kind></reliability>\n      </qos>\n{multicast_reader}"
        "      <historyMemoryPolicy>PREALLOCATED_WITH_REALLOC</historyMemoryPolicy>\n    </data_reader>\n"
        "</profiles>\n"
    )


_FASTDDS_TIMES = (
    "      <times>\n        <heartbeatPeriod><sec>0</sec><nanosec>10000000</nanosec></heartbeatPeriod>\n"
    "        <nackSupressionDuration><sec>0</sec><nanosec>1000000</nanosec></nackSupressionDuration>\n      </times>\n"
)
"""The period of heartbeats with which k8sdds-perftest measured; the library's own is 3 s. The misspelling is the
library's."""


def _fastdds_measured() -> str:
    return (
        '<dds xmlns="http://www.eprosima.com/XMLSchemas/fastRTPS_Profiles">\n  <profiles>\n'
        '    <participant profile_name="participant">\n      <rtps>\n'
        f"        <listenSocketBufferSize>{RECEIVE_BUFFER_BYTES}</listenSocketBufferSize>\n"
        "      </rtps>\n    </participant>\n"
        '    <data_writer profile_name="writer">\n'
        "      <historyMemoryPolicy>PREALLOCATED_WITH_REALLOC</historyMemoryPolicy>\n    </data_writer>\n"
        "  </profiles>\n</dds>\n"
    )


def _reliability(flow: Flow, choices: Mapping[str, Any]) -> str:
    return str(choices["reliability"]) if flow.reliability == "any" else flow.reliability


def _qos_file(flow: Flow, choices: Mapping[str, Any]) -> ReadyFile:
    """Return the QoS profile that a flow was measured with, named after it."""
    kind = "best-effort" if _reliability(flow, choices) == "best-effort" else "strict-reliable"
    text = (shared("qos") / f"{kind}.xml").read_text(encoding="utf-8")
    named = re.sub(r'<qos_profile name="[^"]*"', f'<qos_profile name="{escape(flow.name)}"', text, count=1)
    purpose = f"DDS-XML QoS of the flow {flow.name}, as measured ({kind})"
    return ReadyFile(f"qos-{flow.name}.xml", purpose, named)


def _network_file(choices: Mapping[str, Any]) -> ReadyFile:
    network = label_without_engine(str(choices["network"]))
    known = NETWORKS.get(network)
    if known is None or known.cluster is None:
        text = f"# {network} is not installed by k8sdds: install it as its documentation states.\n"
    else:
        text = (
            f"#!/bin/sh\n# Install {known.title} on a cluster that k8sdds deployed: pass the name of its profile.\n"
            f'set -eu\nexec k8sdds network switch "$1" {network}\n'
        )
    return ReadyFile(
        "network.sh",
        "the network: `sh network.sh PROFILE`, or `network` of a profile for `k8sdds deploy`",
        text,
    )


def _sysctl_file(choices: Mapping[str, Any]) -> ReadyFile:
    values: dict[str, Any] = {"net.core.rmem_max": RECEIVE_BUFFER_BYTES}
    chosen = str(choices["tuning"])
    about = "# Sockets of the middleware request receive buffers of 8 MiB, which the kernel limits to this.\n"
    if chosen != NO_TUNING:
        about += f"# The rest is the tuning set {chosen}.\n"
        values |= tuning.load(chosen).sysctls
    lines = "".join(f"{key} = {value}\n" for key, value in values.items())
    return ReadyFile("99-k8sdds.conf", "sysctls of the nodes: copy it to /etc/sysctl.d/", about + lines)


def _pod_file(application: Application, best: Ranked) -> ReadyFile:
    """Return a fragment of a manifest: a ConfigMap with the files, and a pod template that mounts it."""
    choices = best.option.choices
    middleware = str(choices["middleware"])
    own = {file.name: file.text for file in _middleware_files(application, choices) if "/" not in file.name}
    variables = {
        "cyclonedds": [("CYCLONEDDS_URI", "file:///etc/dds/cyclonedds.xml")],
        "fastdds": [
            ("FASTDDS_DEFAULT_PROFILES_FILE", "/etc/dds/fastdds.xml"),
            ("FASTRTPS_DEFAULT_PROFILES_FILE", "/etc/dds/fastdds.xml"),
        ],
    }.get(middleware, [])
    container = {
        "name": "participant",
        "image": "registry.example/your-image:1",
        "env": [{"name": name, "value": value} for name, value in variables],
        "resources": {"requests": {"cpu": f"{_cpu_milli(best)}m"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "dds", "mountPath": "/etc/dds", "readOnly": True}],
    }
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    if choices["network"] == "host":
        spec["hostNetwork"] = True
    spec["volumes"] = [{"name": "dds", "configMap": {"name": f"{application.name}-dds"}}]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": application.name},
        "spec": {
            "selector": {"matchLabels": {"app": application.name}},
            "template": {"metadata": {"labels": {"app": application.name}}, "spec": spec},
        },
    }
    about = (
        "# A fragment to merge into the manifests of your application: one Deployment for each of its programs.\n"
        "# The CPU request is the most that a participant used in the measurement, without your program's own work.\n"
    )
    own |= {file.name: file.text for file in (_qos_file(flow, choices) for flow in application.flows)}
    text = about + _config_map(f"{application.name}-dds", own) + "---\n" + yaml_text.dump(deployment)
    return ReadyFile(
        "pods.yaml", "fragment of a Kubernetes manifest: ConfigMap, environment, CPU request", text
    )


def _config_map(name: str, files: Mapping[str, str]) -> str:
    """Return a ConfigMap in which the files are readable."""
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata:", f"  name: {name}", "data:"]
    for file, text in files.items():
        lines += [f"  {file}: |", *(f"    {line}" if line else "" for line in text.splitlines())]
    return "\n".join(lines) + "\n"


def _cpu_milli(best: Ranked) -> int:
    """Return the most CPU time of a participant, in thousandths of a core."""
    used = [
        float(row[name])
        for rows in best.option.trials.values()
        for row in rows
        for name in ("publisher_cpu_percent", "subscriber_cpu_percent")
        if row.get(name) is not None
    ]
    return max(MIN_CPU_MILLI, round(10 * max(used, default=0.0)))


def _confirm_file(application: Application, choices: Mapping[str, Any]) -> ReadyFile:
    """Return an experiment that measures the configuration with the files."""
    middleware = str(choices["middleware"])
    network = label_without_engine(str(choices["network"]))
    sweeps = []
    for flow in application.flows:
        values = {key: choices["network" if key == "networks" else key] for key in applications.CHOSEN}
        own = expansion.effective(flow, values) | {"networks": network}
        text = str(own["message_bytes"])
        own["message_bytes"] = int(text) if text.isdecimal() else text
        background = expansion.background(application, flow, str(choices["transport"]))
        test = {"name": "paced"} | ({"deadline_ms": flow.deadline_ms} if flow.deadline_ms else {})
        sweep = own | {
            "test": test, "payload_bytes": flow.payload_bytes, "rate": flow.rate, "publishers": flow.publishers,
            "subscribers": flow.subscribers,
        }  # fmt: skip
        if background:
            sweep["background"] = background.model_dump(mode="json", exclude_defaults=True)
        if middleware in ("cyclonedds", "fastdds"):
            sweep["middleware_config"] = f"measured/{middleware}.xml"
        sweeps.append(sweep)
    experiment = {
        "name": f"{application.name}-confirm",
        "title": f"Does this configuration of {application.name} do what was measured before?",
        "baseline": network,
        "repetitions": application.repetitions,
        "duration_s": application.duration_s or trial_length.default_s(application),
        "warmup_s": application.warmup_s,
        "layout": application.layout,
        "link": application.link.model_dump(mode="json", exclude_none=True),
        "sweeps": sweeps,
    }
    return ReadyFile(
        "confirm.yaml",
        "experiment that measures it with these files: `k8sdds run confirm.yaml`",
        yaml_text.dump(experiment),
    )
