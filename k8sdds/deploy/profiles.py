"""Load profiles by name or file, and return how SSH reaches their machines."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from k8sdds import networks
from k8sdds.deploy import local_nodes, record
from k8sdds.model.profile import Node, Profile
from k8sdds.security import preshared
from k8sdds.system import private_files, yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.shipped import ShippedFiles
from k8sdds.system.ssh import Target

PROFILES = ShippedFiles(("profiles",), "profile")


def load(name: str) -> Profile:
    """Return an installed profile by its name, or the profile in a YAML file by its path."""
    path, text = PROFILES.read(name)
    profile = parse(text, str(path))
    lines = yaml_text.lines_of(text, "nodes")
    nodes = [node.at(f"{path}:{line}: ") for node, line in zip(profile.nodes, lines, strict=True)]
    return profile.model_copy(update={"nodes": nodes})


def parse(text: str, source: str) -> Profile:
    """Return the profile in a YAML text; `source` is the file name for error messages."""
    return yaml_text.parse(text, Profile, source, {"pod_networks": networks.pod_networks()})


def schema() -> dict[str, Any]:
    """Return the JSON Schema of profile files, with the names of all networks."""
    json_schema = Profile.model_json_schema()
    json_schema["$defs"]["PodNetwork"]["properties"]["name"]["enum"] = list(networks.pod_networks())
    return json_schema


def deployed(name: str) -> Profile:
    """Return the profile of a cluster that was deployed from this machine."""
    cluster_record = record.read(name)
    if cluster_record is None:
        raise not_deployed(name)
    return Profile.model_validate(cluster_record["profile"])


def not_deployed(name: str) -> InputError:
    """Return the error for a cluster without a record on this machine."""
    return InputError(f"no cluster {name!r} was deployed from this machine", f"run: k8sdds deploy {name}")


def targets(profile: Profile, names: Collection[str] | None = None) -> list[Target]:
    """Return how SSH reaches the machines of a profile, or only these. Local nodes must exist."""
    _refuse_example(profile)
    if profile.provider == "local":
        found = local_nodes.targets(profile)
    else:
        found = [_target(profile, node) for node in profile.nodes]
    return [target for target in found if not names or target.name in names]


def _refuse_example(profile: Profile) -> None:
    """Refuse a profile with addresses for documentation: its machines do not exist."""
    examples = [node for node in profile.nodes if node.is_example]
    if not examples:
        return
    shipped = profile.name if profile.name in PROFILES.names() else "edge-lab"
    first, more = examples[0], f" (and {len(examples) - 1} more)" if examples[1:] else ""
    raise InputError(
        f"{first.where}nodes.{first.name}.address: {first.address} is an example, not the address of a"
        f" machine{more}",
        "write a profile of your machines: k8sdds init profile --node USER@ADDRESS --node …; or copy an"
        f" example (k8sdds init profile --like {shipped}) and replace its addresses",
    )


def _target(profile: Profile, node: Node) -> Target:
    access = profile.access_of(node)
    key, known_hosts, config = (
        Path(text).expanduser() if text else None
        for text in (access.key, access.known_hosts, access.ssh_config)
    )
    if key is not None and not key.is_file():
        raise InputError(
            f"{node.name}: the key file {key} does not exist", "correct `key`, or remove it to use ssh_config"
        )
    if config is not None and not config.is_file():
        raise InputError(
            f"{node.name}: the file {config} does not exist", "correct `ssh_config`, or remove it"
        )
    return Target(node.name, node.address, access.user, access.port, key, known_hosts, ssh_config=config)


def password(profile: Profile) -> str | None:
    """Return the secret of an encrypted network, from the file that the profile names; None without a file."""
    if profile.network.password_file is None:
        return None
    install = networks.find(profile.network.name).cluster
    min_characters = (install and install.min_password_characters) or 0
    return preshared.read(
        Path(profile.network.password_file).expanduser(), "network.password_file", min_characters
    )


def registry_login(profile: Profile) -> str:
    """Return USER:PASSWORD of the registry mirrors, from the file that the profile names; empty without a file."""
    if profile.registry is None or profile.registry.login_file is None:
        return ""
    path = Path(profile.registry.login_file).expanduser()
    remedy = f"create it: (umask 077; cat > {path}), and type USER:PASSWORD"
    login = private_files.read_line(path, "registry.login_file", remedy)
    if not all(login.partition(":")):
        raise InputError(f"registry.login_file: {path} does not contain USER:PASSWORD", remedy)
    return login
