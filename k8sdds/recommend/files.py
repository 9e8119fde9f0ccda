"""Write the files with which an application uses its recommended configuration.

`confirm.yaml` measures the configuration with these files: `k8sdds run FOLDER/confirm.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from k8sdds import middleware
from k8sdds.campaign import applications, expansion, trial_length
from k8sdds.deploy import tuning
from k8sdds.middleware.files import RECEIVE_BUFFER_BYTES, Configuration, ReadyFile
from k8sdds.model.application import Application, Flow
from k8sdds.model.message_size import LONGEST_MESSAGE_BYTES
from k8sdds.model.security import NONE
from k8sdds.model.settings import NO_TUNING
from k8sdds.networks import NETWORKS, label_without_engine
from k8sdds.recommend.answer import Answer, Ranked
from k8sdds.system import yaml_text
from k8sdds.system.faults import explained
from k8sdds.system.files import write_atomically
from k8sdds.system.paths import shared

FOLDER = "configuration"
"""Name of the folder."""
UDP_HEADERS = 28
MIN_CPU_MILLI = 10


def write(answer: Answer, folder: Path) -> list[Path]:
    """Write the files of the first configuration and return their paths, README.md first; none without one."""
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
    own = _middleware_files(application, choices)
    part = "the part of it that `middleware_config` of an experiment may set; `confirm.yaml` sets the rest"
    files = [
        *own,
        *(ReadyFile(f"measured/{file.name}", part, file.measured) for file in own if file.measured),
        *_qos_files(application, choices),
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
    """Return the largest message of a configuration in bytes; None means the middleware's default."""
    text = str(choices["message_bytes"])
    if text == "mtu":
        network = NETWORKS.get(label_without_engine(str(choices["network"])))
        return (network.default_mtu if network else 1500) - UDP_HEADERS
    if text.isdecimal():
        return int(text)
    if text == "auto":
        return middleware.find(str(choices["middleware"])).auto_message_bytes
    return LONGEST_MESSAGE_BYTES if text == "max" else None


def _middleware_files(application: Application, choices: Mapping[str, Any]) -> list[ReadyFile]:
    carries = NETWORKS.get(label_without_engine(str(choices["network"])))
    configuration = Configuration(
        message_bytes(choices),
        reliable=any(_reliability(flow, choices) == "reliable" for flow in application.flows),
        multicast=choices["transport"] == "multicast",
        carries_multicast=bool(carries and carries.multicast),
        protected=choices["security"] != NONE,
    )
    return middleware.find(str(choices["middleware"])).ready_files(configuration)


def _reliability(flow: Flow, choices: Mapping[str, Any]) -> str:
    return str(choices["reliability"]) if flow.reliability == "any" else flow.reliability


def _qos_files(application: Application, choices: Mapping[str, Any]) -> list[ReadyFile]:
    """Return the DDS-XML that the flows were measured with; none if the middleware has another format."""
    if middleware.find(str(choices["middleware"])).config_suffix != ".xml":
        return []
    return [_qos_file(flow, choices) for flow in application.flows]


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
    files = _middleware_files(application, choices)
    own = {file.name: file.text for file in files}
    variables = [
        {"name": name, "value": f"{before}/etc/dds/{file.name}"}
        for file in files
        for name, before in file.variables.items()
    ]
    container = {
        "name": "participant",
        "image": "registry.example/your-image:1",
        "env": variables,
        "resources": _resources(best),
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
    own |= {file.name: file.text for file in _qos_files(application, choices)}
    text = about + _config_map(f"{application.name}-dds", own) + "---\n" + yaml_text.dump(deployment)
    return ReadyFile(
        "pods.yaml", "fragment of a Kubernetes manifest: ConfigMap, environment, CPU request", text
    )


def _config_map(name: str, files: Mapping[str, str]) -> str:
    lines = ["apiVersion: v1", "kind: ConfigMap", "metadata:", f"  name: {name}", "data:"]
    for file, text in files.items():
        lines += [f"  {file}: |", *(f"    {line}" if line else "" for line in text.splitlines())]
    return "\n".join(lines) + "\n"


def _resources(best: Ranked) -> dict[str, Any]:
    """Return what was used as the request, at most the limit that was measured, if there was one."""
    limit = best.option.choices.get("cpu_quota")
    if limit is None:
        return {"requests": {"cpu": f"{_cpu_milli(best)}m"}}
    most = round(limit * 1000)
    return {"requests": {"cpu": f"{min(_cpu_milli(best), most)}m"}, "limits": {"cpu": f"{most}m"}}


def _cpu_milli(best: Ranked) -> int:
    trials = [row for rows in best.option.trials.values() for row in rows]
    names = ("publisher_cpu_percent", "subscriber_cpu_percent")
    used = [float(row[name]) for row in trials for name in names if row.get(name) is not None]
    if not used:
        # Of a graph, what its nodes on one node of the testbed used together is known.
        used = [node["participants"] for row in trials for node in (row.get("nodes_cpu") or {}).values()]
    return max(MIN_CPU_MILLI, round(10 * max(used, default=0.0)))


def _confirm_file(application: Application, choices: Mapping[str, Any]) -> ReadyFile:
    measured = [file.name for file in _middleware_files(application, choices) if file.measured]
    network = label_without_engine(str(choices["network"]))
    sweeps = []
    values = {key: choices.get("network" if key == "networks" else key) for key in applications.CHOSEN}
    for flow in application.flows[: application.cells]:
        chosen = (
            expansion.effective_graph(application, values)
            if application.at_once
            else expansion.effective(flow, values)
        )
        own = chosen | {"networks": network}
        text = str(own["message_bytes"])
        own["message_bytes"] = int(text) if text.isdecimal() else text
        background = expansion.background(application, flow, str(choices["transport"]))
        sweep = applications.sent(application, flow) | own if application.at_once else own | flow.sent
        if background:
            sweep["background"] = background.model_dump(mode="json", exclude_defaults=True)
        if measured:
            sweep["middleware_config"] = f"measured/{measured[0]}"
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
