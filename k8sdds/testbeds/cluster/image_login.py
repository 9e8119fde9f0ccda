"""Pull images with the login of the user, from a registry that requires one.

The login is a Secret in the namespaces of a campaign, which is deleted with them. Only the logins to the registry of
the image are copied to the cluster.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from k8sdds.system import private_files, reading
from k8sdds.system.errors import InputError, Problem

NAME = "k8sdds-image-login"
OPTION = "--image-login"
RIGHTS = (("create", "", "secrets"),)
DOCKER_HUB = "docker.io"
"""Registry of images whose name has none."""


def registry(image: str) -> str:
    """Return the registry of an image, such as `registry.example:5000` or `docker.io`."""
    first, slash, _ = image.partition("/")
    return first if slash and ("." in first or ":" in first or first == "localhost") else DOCKER_HUB


def read(file: Path, image: str) -> dict[str, Any]:
    """Return the logins to the registry of an image in a file that `docker login` or `skopeo login` wrote.

    Raises InputError if the file has none.
    """
    host = registry(image)
    remedy = f"write the login into a file: skopeo login --authfile FILE {host}"
    try:
        content = reading.json_object(private_files.read(file, OPTION, remedy).encode(), str(file), remedy)
    except reading.UnreadableError as error:
        raise InputError(f"{OPTION}: {error.message}", remedy) from error
    auths = content.get("auths")
    entries = auths.items() if isinstance(auths, dict) else ()
    # With a credential helper, the file has an entry without a login.
    found = {key: login for key, login in entries if _host(key) == host and isinstance(login, dict) and login}
    if not found:
        raise InputError(f"{OPTION}: {file} has no login to {host}, the registry of {image}", remedy)
    return {"auths": found}


def _host(key: str) -> str:
    """Return the registry of an entry, such as `registry.example/lab` or `https://index.docker.io/v1/`."""
    host = key.partition("://")[2] or key
    return host.partition("/")[0].replace("index.docker.io", DOCKER_HUB)


def secret(logins: dict[str, Any], labels: dict[str, str]) -> dict[str, Any]:
    """Return the Secret with these logins."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": NAME, "labels": labels},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": json.dumps(logins)},
    }


def in_prepared(namespace: str) -> str:
    """Return the fix if images in a prepared namespace require a login."""
    return f"let the administrator of {namespace} name a Secret in imagePullSecrets of its ServiceAccount default"


def problems(namespace: str | None, missing: list[str]) -> list[Problem]:
    """Return why k8sdds cannot create the Secret: in a prepared namespace, or because of missing rights."""
    if namespace is not None:
        return [
            Problem(
                f"{OPTION}: k8sdds creates no Secrets in the prepared namespace {namespace}",
                f"leave it out, and {in_prepared(namespace)}",
                input=True,
            )
        ]
    remedy = "let an administrator grant it: k8sdds init rights"
    return [Problem(f"{OPTION}: not allowed: {', '.join(missing)}", remedy)] if missing else []
