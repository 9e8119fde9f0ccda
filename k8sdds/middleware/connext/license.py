"""Connext's licence on a cluster: a Secret, and where the pods of a campaign find it. Pure.

Its content is in the Secret and in memory, and nowhere else: in no image, command line, log or run folder.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k8sdds import versions
from k8sdds.system.errors import InputError

VARIABLE = "RTI_LICENSE_FILE"
"""RTI's own: the file's path."""
SECRET = "rti-licence"
KEY = "rti_license.dat"
FOLDER = "/run/secrets/rti"
IN_POD = f"{FOLDER}/{KEY}"


def file(environment: Mapping[str, str]) -> Path | None:
    """The user's licence, None where none is named. InputError where there is no such file."""
    named = environment.get(VARIABLE, "")
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_file():
        raise InputError(f"{VARIABLE}: there is no file {named}", "give the path of your licence")
    return path


def secret(namespace: str, content: bytes) -> dict[str, Any]:
    """The Secret, for a campaign's own namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": SECRET,
            "namespace": namespace,
            "labels": {versions.MANAGED_BY_LABEL: versions.MANAGED_BY},
        },
        "immutable": True,
        "type": "Opaque",
        "data": {KEY: base64.b64encode(content).decode()},
    }


def pod_parts() -> dict[str, Any]:
    """What a participant's pod has beside its own: a volume, and its mount in the first container.

    Optional, since some builds of Connext need no licence: where the Secret is missing the folder is empty.
    """
    source = {"secretName": SECRET, "optional": True, "defaultMode": 0o440}
    return {
        "volumes": [{"name": "licence", "secret": source}],
        "volumeMounts": [{"name": "licence", "mountPath": FOLDER, "readOnly": True}],
    }
