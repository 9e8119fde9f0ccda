"""Decide what the bundle of a profile must include. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds import versions
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.model.profile import Profile
from k8sdds.system.errors import InputError


def architectures_of(profile: Profile, requested: Sequence[str]) -> list[str]:
    """Return the architectures of a profile's machines, or the requested ones if they include those.

    Raises:
        InputError: A bundle cannot match the profile, or the requested architectures do not.
    """
    if profile.kubernetes.version != versions.KUBERNETES:
        raise InputError(
            f"{profile.name} requires Kubernetes {profile.kubernetes.version}, but bundles contain"
            f" {versions.KUBERNETES}",
            f"set kubernetes.version: {versions.KUBERNETES} or software: packages",
        )
    # Local nodes run on this machine.
    given = [
        node.architecture or (HOST_ARCH if profile.provider == "local" else None) for node in profile.nodes
    ]
    expected: list[str] = list(dict.fromkeys(filter(None, given)))
    missing = [arch for arch in expected if requested and arch not in requested]
    if missing:
        raise InputError(
            f"{profile.name} has {', '.join(missing)} machines, but --arch does not include them",
            f"use --arch {','.join([*requested, *missing])}",
        )
    if not requested and None in given:
        raise InputError(
            f"{profile.name} does not specify the architecture of every machine",
            "set `architecture:` in the profile, or use --arch",
        )
    return list(requested) or list(expected)
