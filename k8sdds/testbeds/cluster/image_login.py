"""Pull images with the login of the user, from a registry that requires one.

The login is a Secret in the namespaces of a campaign, which is deleted with them. Only the logins to the registries
of the campaign's images are copied to the cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(frozen=True)
class LoginFile:
    """A file that `docker login`, `podman login` or `skopeo login` wrote."""

    path: Path
    logins: Mapping[str, Any] = field(repr=False)
    """Logins by registry, as the file names it."""

    @classmethod
    def read(cls, path: Path) -> LoginFile:
        """Read a file that other users cannot read. Raises InputError."""
        remedy = _remedy("REGISTRY")
        try:
            content = reading.json_object(
                private_files.read(path, OPTION, remedy).encode(), str(path), remedy
            )
        except reading.UnreadableError as error:
            raise InputError(f"{OPTION}: {error.message}", remedy) from error
        auths = content.get("auths")
        entries = auths.items() if isinstance(auths, dict) else ()
        # With a credential helper, the file has an entry without a login.
        return cls(path, {key: login for key, login in entries if isinstance(login, dict) and login})

    def select(self, images: Sequence[str]) -> dict[str, Any]:
        """Return the logins to the registries of these images. Raises InputError if there are none."""
        hosts = list(dict.fromkeys(map(registry, images)))
        found = {key: login for key, login in self.logins.items() if _host(key) in hosts}
        if not found:
            what = f"no login to {' or '.join(hosts)}, the registry of {' or '.join(images)}"
            raise InputError(f"{OPTION}: {self.path} has {what}", _remedy(hosts[0]))
        return {"auths": found}


def _remedy(host: str) -> str:
    return f"write the login into a file: skopeo login --authfile FILE {host}"


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
