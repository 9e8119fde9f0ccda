"""Profiles by name or file, and how ssh reaches their machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from k8sdds import networks
from k8sdds.deploy import local_nodes, record
from k8sdds.model.profile import Profile
from k8sdds.security import preshared
from k8sdds.system import yaml_text
from k8sdds.system.errors import InputError
from k8sdds.system.shipped import ShippedFiles
from k8sdds.system.ssh import Target

PROFILES = ShippedFiles("profiles", "profile")


def names() -> list[str]:
    """Names of the installed profiles."""
    return PROFILES.names()


def load(name: str) -> Profile:
    """An installed profile by its name, or one from a YAML file by its path."""
    path, text = PROFILES.read(name)
    return parse(text, str(path))


def parse(text: str, source: str) -> Profile:
    """Return the profile in a YAML text; `source` is the file name for error messages.

    Raises:
        InputError: The text is not a valid profile; names every mistake with its line.
    """
    return yaml_text.parse(text, Profile, source, {"pod_networks": networks.pod_networks()})


def schema() -> dict[str, Any]:
    """Return the JSON Schema of profile files, with the names of all networks."""
    found = Profile.model_json_schema()
    found["$defs"]["PodNetwork"]["properties"]["name"]["enum"] = list(networks.pod_networks())
    return found


def deployed(name: str) -> Profile:
    """The profile of a cluster that was deployed from here. Raises InputError where there is none."""
    known = record.read(name)
    if known is None:
        raise not_deployed(name)
    return Profile.model_validate(known["profile"])


def not_deployed(name: str) -> InputError:
    """What to tell of a cluster that is not known here."""
    return InputError(f"no cluster {name!r} was deployed from here", f"k8sdds deploy {name}")


def targets(profile: Profile) -> list[Target]:
    """How ssh reaches the machines of a profile; local nodes must stand."""
    if profile.provider == "local":
        return local_nodes.targets(profile)
    found = []
    for node in profile.nodes:
        access = profile.access_of(node)
        key = Path(access.key).expanduser() if access.key else None
        if key is not None and not key.is_file():
            raise InputError(
                f"{node.name}: there is no key file {key}", "correct `key`, or leave it to ssh_config"
            )
        known = Path(access.known_hosts).expanduser() if access.known_hosts else None
        config = Path(access.ssh_config).expanduser() if access.ssh_config else None
        if config is not None and not config.is_file():
            raise InputError(
                f"{node.name}: there is no file {config}", "correct `ssh_config`, or leave it out"
            )
        found.append(Target(node.name, node.address, access.user, access.port, key, known, ssh_config=config))
    return found


def password(profile: Profile) -> str | None:
    """The secret of an encrypted network, from the file that the profile names; None where none is needed."""
    if profile.network.password_file is None:
        return None
    install = networks.find(profile.network.name).cluster
    min_characters = (install and install.min_password_characters) or 0
    return preshared.read(
        Path(profile.network.password_file).expanduser(), "network.password_file", min_characters
    )
