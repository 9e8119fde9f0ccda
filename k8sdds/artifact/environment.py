"""What an artifact was made with: Python packages now, and what each campaign recorded of its machine."""

from __future__ import annotations

import json
import re
from importlib import metadata

from k8sdds.results.run_folder import RunFolder

_NAME = re.compile(r"^[A-Za-z0-9._-]+")


def of_python() -> str:
    """k8sdds and all packages that it needs with their versions, as pip's constraints."""
    found: dict[str, str] = {}
    waiting = ["k8sdds"]
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            # A requirement for another system, or an extra that nobody asked for.
            continue
        found[key] = package.version
        for requirement in package.requires or []:
            match = _NAME.match(requirement)
            if match and "extra ==" not in requirement:
                waiting.append(match[0])
    return "".join(f"{name}=={version}\n" for name, version in sorted(found.items()))


def of_run(run: RunFolder) -> str:
    """What campaign.json says of machine, versions and networks, as JSON."""
    campaign = run.campaign
    kept = {key: campaign.get(key) for key in ("k8sdds_version", "seed", "command", "testbed", "networks")}
    return json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
