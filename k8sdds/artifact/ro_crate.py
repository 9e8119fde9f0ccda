"""RO-Crate metadata of an artifact: a Process Run Crate, one action per campaign.

Raw files are described by their folder, not one by one: a sweep has tens of thousands, and SHA256SUMS
names them all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from k8sdds import __version__

if TYPE_CHECKING:
    from rocrate.rocrate import ROCrate

    from k8sdds.artifact.archive import Description, Run

NAME = "ro-crate-metadata.json"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
RUN_FILES = {
    "campaign.json": ("what was run, where, with which versions", "application/json"),
    "experiment.yaml": ("the resolved experiment, every default spelled out", "application/yaml"),
    "trials.jsonl": ("one line per attempt: its cell, numbers, and whether it is valid", "application/jsonl"),
    "events.jsonl": ("what happened around the trials", "application/jsonl"),
}
STUDY = {
    "@type": "ScholarlyArticle",
    "name": "A Comprehensive Performance Evaluation of Different Kubernetes CNI Plugins for Edge-based and"
    " Containerized Publish/Subscribe Applications",
    "author": "Kang, An, Gokhale, Pazandak",
    "datePublished": "2021",
}


def metadata(description: Description, runs: list[Run], own: dict[str, str], published: str) -> str:
    """ro-crate-metadata.json as text.

    `own`: path to description of the artifact's own files; `published`: ISO date of its newest campaign.
    """
    # rocrate takes half a second to import, and only packing needs it.
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version="1.1")

    def add(identifier: str, properties: dict[str, Any]) -> ContextEntity:
        return crate.add(ContextEntity(crate, identifier, properties=properties))

    root = crate.root_dataset
    root["name"] = description.title
    root["description"] = (
        "Raw results of k8sdds campaigns (DDS measured over Kubernetes pod networks), with what is needed to"
        " analyse them again and to measure them again. Start with README.md."
    )
    root["datePublished"] = published
    root["conformsTo"] = add(
        PROFILE, {"@type": "CreativeWork", "name": "Process Run Crate", "version": PROFILE.rpartition("/")[2]}
    )
    root["license"] = add(*_licence(description.licence))
    root["citation"] = add("#study", STUDY)
    authors = [
        add(f"#author-{number}", {"@type": "Person", "name": name})
        for number, name in enumerate(description.authors, 1)
    ]
    if authors:
        root["author"] = _one(authors)
    k8sdds = add(
        "#k8sdds",
        {
            "@type": "SoftwareApplication",
            "name": "k8sdds",
            "softwareVersion": __version__,
            "description": "Measures DDS over Kubernetes pod networks",
        },
    )
    for path, what in own.items():
        _file(crate, path, what)
    root["mentions"] = [_action(crate, add, run, k8sdds, authors) for run in runs]
    return json.dumps(_sorted(crate.metadata.generate()), indent=1, ensure_ascii=False) + "\n"


def _licence(name: str | None) -> tuple[str, dict[str, Any]]:
    if name is None:
        words = "Not stated: its author must choose a licence before others may use it"
        return "#licence", {"@type": "CreativeWork", "name": words, "description": words}
    return f"https://spdx.org/licenses/{name}", {
        "@type": "CreativeWork", "name": name, "description": f"The licence {name} of the SPDX list",
    }  # fmt: skip


def _file(crate: ROCrate, path: str, what: str, kind: str | None = None) -> Any:
    kind = kind or {"md": "text/markdown", "json": "application/json", "csv": "text/csv"}.get(
        path.rpartition(".")[2], "text/plain"
    )
    return crate.add_file(
        dest_path=path, properties={"name": path, "description": what, "encodingFormat": kind}
    )


def _action(crate: ROCrate, add: Any, run: Run, k8sdds: Any, authors: list[Any]) -> Any:
    """The campaign: k8sdds took the experiment and its QoS profiles, and made trials and raw files."""
    at = f"runs/{run.name}"
    files = {path: _file(crate, f"{at}/{path}", *RUN_FILES[path]) for path in RUN_FILES if path in run.sums}
    inputs = [files["experiment.yaml"]] if "experiment.yaml" in files else []
    inputs += [
        _file(crate, f"{at}/{path}", "a QoS profile, as it was", "application/xml")
        for path in sorted(run.sums)
        if path.startswith("qos/")
    ]
    results = [files[path] for path in ("trials.jsonl", "events.jsonl") if path in files]
    raw = sum(1 for path in run.sums if path.startswith("raw/"))
    if raw:
        results.append(
            crate.add_dataset(
                dest_path=f"{at}/raw/",
                properties={
                    "name": f"raw files of {run.name}",
                    "description": f"{raw} files, raw/TRIAL_ID/ATTEMPT/PARTICIPANT/: what each participant"
                    " printed, its meters, latency histograms and timeline, byte for byte",
                },
            )
        )
    tool = add(
        f"#perftest-{run.name}",
        {
            "@type": "SoftwareApplication", "name": "perftest of " + run.name,
            "softwareVersion": run.perftest or "not recorded",
        },
    )  # fmt: skip
    software = add(
        f"#k8sdds-{run.name}",
        {
            "@type": "SoftwareApplication", "name": "k8sdds", "softwareVersion": run.version,
            "softwareRequirements": tool,
        },
    ) if run.version != __version__ or run.perftest else k8sdds  # fmt: skip
    properties: dict[str, Any] = {
        "@type": "CreateAction",
        "name": f"Campaign {run.campaign}",
        "description": run.command or f"the campaign {run.campaign}; its command was not recorded",
        "instrument": software,
        "startTime": _offset(run.started_at),
        "endTime": _offset(run.ended_at),
        "object": inputs,
        "result": results,
        "agent": _one(authors),
        "actionStatus": "http://schema.org/CompletedActionStatus" if run.complete else None,
    }
    return add(f"#campaign-{run.name}", {key: value for key, value in properties.items() if value})


def _one(entities: list[Any]) -> Any:
    """JSON-LD as RO-Crate 1.1 wants it: a single value stands without brackets."""
    return entities[0] if len(entities) == 1 else entities


def _offset(at: str | None) -> str | None:
    """A UTC time with its offset in figures, as the profile's own checks want it."""
    return at.removesuffix("Z") + "+00:00" if at and at.endswith("Z") else at


def _sorted(data: dict[str, Any]) -> dict[str, Any]:
    """The graph in an order that does not depend on how it was built."""
    head = {NAME: 0, "./": 1}
    graph = sorted(data["@graph"], key=lambda entity: (head.get(entity["@id"], 2), entity["@id"]))
    return {**data, "@graph": graph}
