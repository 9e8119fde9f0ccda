"""Record the current Python packages, and the machine and versions of each campaign."""

from __future__ import annotations

import json
import re
from importlib import metadata

from k8sdds.results.run_folder import RunFolder

_NAME = re.compile(r"^[A-Za-z0-9._-]+")


def of_python() -> str:
    """Return the versions of k8sdds and of all its dependencies, in pip's constraints format."""
    versions: dict[str, str] = {}
    pending = ["k8sdds"]
    while pending:
        name = pending.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in versions:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            # The dependency is for another platform, or belongs to an extra that is not installed.
            continue
        versions[key] = package.version
        for requirement in package.requires or []:
            match = _NAME.match(requirement)
            if match and "extra ==" not in requirement:
                pending.append(match[0])
    return "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()))


def of_run(run: RunFolder) -> str:
    """Return the machine, versions and networks of a campaign as JSON."""
    campaign = run.campaign
    kept = {key: campaign.get(key) for key in ("k8sdds_version", "seed", "command", "testbed")}
    kept["networks"] = run.networks
    return json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
