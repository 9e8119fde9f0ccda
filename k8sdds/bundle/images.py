"""Select the images of k8sdds (perftest, discovery server, tools) and push them to a registry."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from k8sdds import versions
from k8sdds.bundle import oci
from k8sdds.bundle.bundle import Bundle, Item
from k8sdds.bundle.contents import IMAGES
from k8sdds.system import programs, reading
from k8sdds.system.errors import InputError, PrerequisiteError

INDEX = "application/vnd.oci.image.index.v1+json"
PUSH_TIMEOUT_S = 1800


def references(names: Sequence[str]) -> list[str]:
    """Return the references of the images of k8sdds with these names, or of all, before they are built.

    Those that only some profiles need are in their bundles alone.
    """
    own = (image for image in IMAGES if image.name.startswith(versions.LOCAL_REGISTRY))
    every = [image.name for image in own if not image.on_request]
    tagged = {name.removeprefix(versions.LOCAL_REGISTRY): name for name in every}
    short = {name.partition(":")[0]: reference for name, reference in tagged.items()}
    known = tagged | short
    selected = []
    for name in names:
        reference = known.get(name.removeprefix(versions.LOCAL_REGISTRY))
        if reference is None:
            raise InputError(f"there is no image {name!r}", f"use one of: {', '.join(short)}")
        selected.append(reference)
    return selected or every


def select(bundle: Bundle, arch: str, names: Sequence[str] = ()) -> list[Item]:
    """Return the images of k8sdds for an architecture: all, or those with names such as `perftest` or `tools:1`."""
    by_name = {item.name: item for item in bundle.images(arch)}
    return [by_name[reference] for reference in references(names)]


def check_target(target: str) -> None:
    """Check the target of a push."""
    if not target.strip("/") or "://" in target:
        what = f"{target} is a URL" if target.strip("/") else "no registry is given"
        raise InputError(what, "give REGISTRY or REGISTRY/PATH, such as registry.example/lab")


def push(bundle: Bundle, items: Sequence[Item], target: str, plain_http: bool = False) -> list[str]:
    """Push images to TARGET/NAME:VERSION with skopeo; all architectures of a name become one image.

    skopeo uses the credentials that `skopeo login`, podman or docker stored. Returns the references.
    """
    check_target(target)
    pushed = []
    for name in dict.fromkeys(item.name for item in items):
        same = [item for item in items if item.name == name]
        reference = f"{target.rstrip('/')}/{name.removeprefix(versions.LOCAL_REGISTRY)}"
        with tempfile.TemporaryDirectory(prefix="k8sdds-push-") as folder:
            tag = name.rpartition(":")[2]
            _layout(bundle, same, Path(folder), tag)
            argv = ["skopeo", "copy", "--all", "--preserve-digests"]
            argv += ["--dest-tls-verify=false"] if plain_http else []
            argv += [f"oci:{folder}:{tag}", f"docker://{reference}"]
            done = programs.run(argv, f"push {reference}", PUSH_TIMEOUT_S)
        if "invalid reference format" in done.stderr:
            what = f"{reference!r} is not a valid image reference"
            raise InputError(what, "use lower-case letters and digits, separated by . _ - or /")
        if done.returncode:
            raise _not_pushed(reference, done.stderr)
        pushed.append(reference)
    return pushed


_REMEDIES = {
    "no such host": "check the name of the registry {host}",
    "connection refused|no route to host|timeout": "check the address and port of {host}, and that it runs",
    "HTTP response to HTTPS": "for a registry without TLS use --plain-http",
    "certificate": "trust its certificate authority: put it into /etc/containers/certs.d/{host}/ca.crt",
    "unauthorized|denied|authentication": "log in: skopeo login {host}",
}
"""Patterns in the messages of skopeo, and the fix."""


def _not_pushed(reference: str, stderr: str) -> PrerequisiteError:
    """Return the error for the last message of skopeo, without the fields of its log format."""
    line = (stderr.strip().splitlines() or ["skopeo failed"])[-1]
    logged = re.search(r'msg="((?:[^"\\]|\\.)*)"', line)
    message = reading.one_line(re.sub(r"\\(.)", r"\1", logged[1]) if logged else line, 400)
    remedies = (remedy for pattern, remedy in _REMEDIES.items() if re.search(pattern, message))
    remedy = next(remedies, "see whether you can access it: skopeo login {host}")
    return PrerequisiteError(
        f"cannot push {reference}: {message}", remedy.format(host=reference.partition("/")[0])
    )


def _layout(bundle: Bundle, items: Sequence[Item], folder: Path, tag: str) -> None:
    """Create an OCI layout with one multi-architecture image whose blobs are links to the bundle's blobs."""
    layout = oci.Layout(folder)
    manifests = []
    for item in items:
        path = bundle.file(item)
        layout.link(bundle.folder / "oci", [item.sha256, *oci.parts(oci.manifest(path))])
        manifests.append({
            "mediaType": oci.MANIFEST, "digest": f"sha256:{item.sha256}", "size": path.stat().st_size,
            "platform": {"os": "linux", "architecture": item.arch},
        })  # fmt: skip
    index = layout.add(oci.canonical({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests}))
    entry = {"mediaType": INDEX, **index, "annotations": {"org.opencontainers.image.ref.name": tag}}
    (folder / "index.json").write_bytes(oci.canonical({"schemaVersion": 2, "manifests": [entry]}))
