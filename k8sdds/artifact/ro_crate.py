"""Write the RO-Crate metadata of an artifact: a Process Run Crate with one action per campaign.

Raw files are described by their folder, not individually: a sweep can have tens of thousands, and SHA256SUMS
lists all of them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from k8sdds import __version__
from k8sdds.results.run_folder import LINK_FILES, MIDDLEWARE_CONFIG, QOS, SCHEDULES

if TYPE_CHECKING:
    from rocrate.rocrate import ROCrate

    from k8sdds.artifact.contents import Description, PackedRun

NAME = "ro-crate-metadata.json"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
KINDS = {
    "md": "text/markdown", "json": "application/json", "csv": "text/csv", "xml": "application/xml",
    "json5": "application/json5",
}  # fmt: skip
RUN_FILES = {
    "campaign.json": ("experiment, testbed and versions of the campaign", "application/json"),
    "experiment.yaml": ("the resolved experiment with all defaults", "application/yaml"),
    "trials.jsonl": ("one line per attempt: its cell, results and validity", "application/jsonl"),
    "events.jsonl": ("events between the trials", "application/jsonl"),
}
INPUT_FOLDERS = {
    QOS: "a QoS profile, unchanged",
    MIDDLEWARE_CONFIG: "a configuration of the middleware, unchanged",
    LINK_FILES: "delays, losses or rates of a link, unchanged",
    SCHEDULES: "times and sizes of samples, unchanged",
}
STUDY = {
    "@type": "ScholarlyArticle",
    "name": "A Comprehensive Performance Evaluation of Different Kubernetes CNI Plugins for Edge-based and"
    " Containerized Publish/Subscribe Applications",
    "author": "Kang, An, Gokhale, Pazandak",
    "datePublished": "2021",
}


def metadata(description: Description, runs: list[PackedRun], own: dict[str, str], published: str) -> str:
    """Return the text of ro-crate-metadata.json; `own` describes the artifact's own files, by path."""
    # Importing rocrate takes half a second, and only packing needs it.
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    crate = ROCrate(version="1.1")

    def add(identifier: str, properties: dict[str, Any]) -> ContextEntity:
        return crate.add(ContextEntity(crate, identifier, properties=properties))

    root = crate.root_dataset
    root["name"] = description.title
    root["description"] = (
        "Raw results of k8sdds campaigns (DDS measured over Kubernetes pod networks), with everything that is"
        " needed to repeat the analysis and the measurements. Start with README.md."
    )
    root["datePublished"] = published
    root["conformsTo"] = add(
        PROFILE, {"@type": "CreativeWork", "name": "Process Run Crate", "version": PROFILE.rpartition("/")[2]}
    )
    root["license"] = add(*_license(description.license))
    root["citation"] = add("#study", STUDY)
    authors = [
        add(f"#author-{number}", {"@type": "Person", "name": name})
        for number, name in enumerate(description.authors, 1)
    ]
    if authors:
        root["author"] = _unwrap(authors)
    purpose = "Measures DDS over Kubernetes pod networks"
    k8sdds = _software(add, "#k8sdds", name="k8sdds", softwareVersion=__version__, description=purpose)
    for path, purpose in own.items():
        _file(crate, path, purpose)
    root["mentions"] = [_action(crate, add, run, k8sdds, authors) for run in runs]
    return json.dumps(_sorted(crate.metadata.generate()), indent=1, ensure_ascii=False) + "\n"


def _license(name: str | None) -> tuple[str, dict[str, Any]]:
    if name is None:
        text = "Not stated: the author must choose a license before others may use the data"
        return "#license", {"@type": "CreativeWork", "name": text, "description": text}
    return f"https://spdx.org/licenses/{name}", {
        "@type": "CreativeWork", "name": name, "description": f"The license {name} of the SPDX list",
    }  # fmt: skip


def _file(crate: ROCrate, path: str, description: str, kind: str | None = None) -> Any:
    kind = kind or KINDS.get(path.rpartition(".")[2], "text/plain")
    return crate.add_file(
        dest_path=path, properties={"name": path, "description": description, "encodingFormat": kind}
    )


def _action(crate: ROCrate, add: Any, run: PackedRun, k8sdds: Any, authors: list[Any]) -> Any:
    """Add a campaign: k8sdds used the experiment and QoS profiles to produce trials and raw files."""
    at = f"runs/{run.name}"
    files = {path: _file(crate, f"{at}/{path}", *RUN_FILES[path]) for path in RUN_FILES if path in run.sums}
    inputs = [files["experiment.yaml"]] if "experiment.yaml" in files else []
    inputs += [
        _file(crate, f"{at}/{path}", described)
        for path in sorted(run.sums)
        for folder, described in INPUT_FOLDERS.items()
        if path.startswith(f"{folder}/")
    ]
    results = [files[path] for path in ("trials.jsonl", "events.jsonl") if path in files]
    raw = sum(1 for path in run.sums if path.startswith("raw/"))
    if raw:
        results.append(
            crate.add_dataset(
                dest_path=f"{at}/raw/",
                properties={
                    "name": f"raw files of {run.name}",
                    "description": f"{raw} files, raw/TRIAL_ID/ATTEMPT/PARTICIPANT/: output, meters,"
                    " latency histograms and timeline of each participant, unchanged",
                },
            )
        )
    version = run.perftest or "not recorded"
    tool = _software(add, f"#perftest-{run.name}", name=f"perftest of {run.name}", softwareVersion=version)
    software = k8sdds
    if run.version != __version__ or run.perftest:
        versions = {"name": "k8sdds", "softwareVersion": run.version}
        software = _software(add, f"#k8sdds-{run.name}", **versions, softwareRequirements=tool)
    properties: dict[str, Any] = {
        "@type": "CreateAction",
        "name": f"Campaign {run.campaign}",
        "description": run.command or f"campaign {run.campaign}; its command was not recorded",
        "instrument": software,
        "startTime": _offset(run.started_at),
        "endTime": _offset(run.ended_at),
        "object": inputs,
        "result": results,
        "agent": _unwrap(authors),
        "actionStatus": "http://schema.org/CompletedActionStatus" if run.complete else None,
    }
    return add(f"#campaign-{run.name}", {key: value for key, value in properties.items() if value})


def _software(add: Any, identifier: str, **properties: Any) -> Any:
    return add(identifier, {"@type": "SoftwareApplication", **properties})


def _unwrap(entities: list[Any]) -> Any:
    """Return a single entity without a list, as RO-Crate 1.1 requires."""
    return entities[0] if len(entities) == 1 else entities


def _offset(at: str | None) -> str | None:
    """Return a UTC time with a numeric offset, as the profile requires."""
    return at.removesuffix("Z") + "+00:00" if at and at.endswith("Z") else at


def _sorted(data: dict[str, Any]) -> dict[str, Any]:
    """Sort the graph, so that its order does not depend on how it was built."""
    head = {NAME: 0, "./": 1}
    graph = sorted(data["@graph"], key=lambda entity: (head.get(entity["@id"], 2), entity["@id"]))
    return {**data, "@graph": graph}
