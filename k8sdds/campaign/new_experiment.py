"""Write the text of a new experiment or application: a commented template."""

from __future__ import annotations

from k8sdds import middleware, networks
from k8sdds.campaign import experiments
from k8sdds.model.application import Application
from k8sdds.system import yaml_template
from k8sdds.workloads import WORKLOADS

HEADER = """\
Each sweep measures all combinations of its lists; a single value needs no brackets. Keys that are commented out
show their default: remove the # to change them.
"""


def template(name: str) -> str:
    """Return an experiment that runs as it is, with every key, its meaning, limits and default."""
    sweep = {
        "networks": ["host", "flannel-vxlan"],
        "test": "paced",
        "payload_bytes": [1024, 16384],
        "rate": 100,
        "subscribers": 1,
    }
    values = {
        "name": name,
        "title": "What does the network cost my application?",
        "baseline": "host",
        "repetitions": 3,
        "duration_s": 10,
        "sweeps": [sweep],
    }
    notes: dict[yaml_template.Path, list[str]] = {
        ("sweeps", 0, "networks"): [f"known: {', '.join(networks.NETWORKS)}"],
        ("sweeps", 0, "test"): [f"known: {', '.join(WORKLOADS)}"],
        ("sweeps", 0, "middleware"): [f"known: {', '.join(middleware.MIDDLEWARES)}"],
    }
    shown: dict[yaml_template.Path, object] = {("sweeps", 0, "security"): ["none"]}
    body = yaml_template.render(experiments.json_schema(), values, notes, shown)
    return "\n".join(yaml_template.comment(HEADER)) + "\n\n" + body


APPLICATION_HEADER = """\
What an application sends and requires. Keys that are commented out show their default: remove the # to change them.
"""


def application(name: str) -> str:
    """Return an application that can be measured as it is, with every key, its meaning, limits and default."""
    flow = {
        "name": "camera",
        "payload_bytes": 262144,
        "rate": 30,
        "subscribers": 1,
        "reliability": "any",
        "delay": ["p90 <= 33 ms"],
        "loss_percent": 1,
    }
    values = {
        "name": name,
        "title": "What my robot sends",
        "flows": [flow],
        "optimize": "cpu",
        "repetitions": 5,
    }
    notes: dict[yaml_template.Path, list[str]] = {
        ("choices", "networks"): [f"known: {', '.join(networks.NETWORKS)}"],
    }
    body = yaml_template.render(Application.model_json_schema(), values, notes)
    return "\n".join(yaml_template.comment(APPLICATION_HEADER)) + "\n\n" + body
