"""Configure mirrors of image registries for containerd."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from urllib.parse import urlsplit

from k8sdds.deploy.actions import PRIVATE, Action, PrivateFile
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases.machine import REGISTRIES
from k8sdds.deploy.phases.phase import REGISTRY, files_script, stale, unwanted
from k8sdds.deploy.scripts import shell
from k8sdds.model.profile import Node
from k8sdds.system.errors import InputError

HOSTS_FILE = f"{REGISTRIES}/_default/hosts.toml"
"""Settings for all registries."""
CA_FILE = f"{REGISTRIES}/_default/k8sdds-ca.crt"
FILES = (HOSTS_FILE, CA_FILE)
NEW_HOSTS_FILE = f"{PRIVATE}/hosts.toml"
PROBE_IMAGE = "k8sdds/probe:none"
"""An image that no registry has: asking for it shows whether a mirror can be used."""

NO_SERVER = "127.0.0.1:1"
"""An address without a server. The runtime asks it when a mirror works, and does not have the image."""

# check HOST FILE: ask one mirror for an image with the settings in a file, and explain why it cannot be used.
_CHECK = shell("check_mirror", PROBE_IMAGE=PROBE_IMAGE, NO_SERVER=NO_SERVER)


def registry(state: DesiredState, node: Node) -> list[Action]:
    """Write the mirrors with their certificate and login, and check them; delete them if the profile has none."""
    desired = files(state)
    old = unwanted(state, node, FILES, desired)
    if not old and not stale(state, node, desired):
        return []
    settings = state.profile.registry
    if settings is None:
        return [Action(node.name, REGISTRY, "use no mirror", files_script({}, old))]
    public = {path: text for path, text in desired.items() if path != HOSTS_FILE}
    private = [PrivateFile(NEW_HOSTS_FILE, desired[HOSTS_FILE])]
    # Every mirror is checked separately, before pods depend on it.
    script = files_script(public, old) + _CHECK
    for number, url in enumerate(settings.mirrors):
        path = f"{PRIVATE}/mirror-{number}.toml"
        # With these settings, the runtime asks this mirror, and then no other registry.
        lines = [f'server = "http://{NO_SERVER}"', *_host_settings(state, url)]
        private.append(PrivateFile(path, "".join(f"{line}\n" for line in lines)))
        script += f"check {urlsplit(url).netloc} {path}\n"
    script += f"put {HOSTS_FILE} 0600 <{NEW_HOSTS_FILE}\n"
    return [
        Action(
            node.name, REGISTRY, f"pull images through {', '.join(settings.mirrors)}", script,
            private=tuple(private), timeout_s=300,
            remedy="correct `registry` in the profile, or make the registry reachable from the machine",
        )
    ]  # fmt: skip


def files(state: DesiredState) -> dict[str, str]:
    """Return the files on a node; empty without a registry. They contain the login."""
    registry = state.profile.registry
    if registry is None:
        return {}
    lines = ["# Written by k8sdds."]
    for url in registry.mirrors:
        lines += _host_settings(state, url)
    desired = {HOSTS_FILE: "".join(f"{line}\n" for line in lines)}
    if registry.ca_file:
        desired[CA_FILE] = _certificate(Path(registry.ca_file).expanduser())
    return desired


def _host_settings(state: DesiredState, url: str) -> list[str]:
    table, registry = f"host.{json.dumps(url)}", state.profile.registry
    lines = [f"[{table}]", 'capabilities = ["pull", "resolve"]']
    if registry is not None and registry.ca_file:
        lines.append(f'ca = "{CA_FILE}"')
    if state.login:
        token = base64.b64encode(state.login.encode()).decode()
        lines += [f"[{table}.header]", f'Authorization = "Basic {token}"']
    return lines


def _certificate(path: Path) -> str:
    try:
        text = path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"registry.ca_file: cannot read {path}: {error}", "name a PEM file") from error
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise InputError(f"registry.ca_file: {path} contains no certificate", "name a PEM file")
    return text.rstrip("\n") + "\n"
