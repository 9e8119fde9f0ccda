"""Provide Connext's license to the pods of a campaign as a Secret.

Its content is only in the Secret and in memory: in no image, command line, log or run folder.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from k8sdds import versions
from k8sdds.system.errors import InputError

VARIABLE = "RTI_LICENSE_FILE"
"""The environment variable of RTI with the path of the license file."""
SECRET = "rti-licence"
KEY = "rti_license.dat"
FOLDER = "/run/secrets/rti"
IN_POD = f"{FOLDER}/{KEY}"


def file(environment: Mapping[str, str]) -> Path | None:
    """Return the path of the user's license, or None if the environment names none.

    Raises:
        InputError: There is no such file.
    """
    name = environment.get(VARIABLE, "")
    if not name:
        return None
    path = Path(name).expanduser()
    if not path.is_file():
        raise InputError(f"{VARIABLE}: there is no file {name}", "set it to the path of your license")
    return path


def secret(namespace: str, content: bytes) -> dict[str, Any]:
    """Return the Secret for a campaign's own namespace."""
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
    """Return the volume of the license and its mount in the participant's container.

    The volume is optional, because some builds of Connext need no license: without the Secret its folder is
    empty.
    """
    source = {"secretName": SECRET, "optional": True, "defaultMode": 0o440}
    return {
        "volumes": [{"name": "licence", "secret": source}],
        "volumeMounts": [{"name": "licence", "mountPath": FOLDER, "readOnly": True}],
    }
