"""Whether bundles can be made for a profile, and for which architectures: pure."""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds import versions
from k8sdds.model.profile import Profile
from k8sdds.system.errors import InputError


def arches_of(profile: Profile, given: Sequence[str]) -> list[str]:
    """The architectures of a profile's machines, or those given where they hold them.

    Raises InputError where no bundle made here fits the profile.
    """
    if profile.kubernetes.version != versions.KUBERNETES:
        raise InputError(
            f"{profile.name} wants Kubernetes {profile.kubernetes.version}; bundles are made with"
            f" {versions.KUBERNETES}",
            f"kubernetes.version: {versions.KUBERNETES}; or software: packages",
        )
    expected = list(dict.fromkeys(node.architecture for node in profile.nodes if node.architecture))
    missing = [arch for arch in expected if given and arch not in given]
    if missing:
        raise InputError(
            f"{profile.name} has machines of {', '.join(missing)}, which --arch leaves out",
            f"--arch {','.join([*given, *missing])}",
        )
    if not given and any(node.architecture is None for node in profile.nodes):
        raise InputError(
            f"{profile.name} does not say the architecture of every machine",
            "`architecture:` in the profile; or --arch",
        )
    return list(given) or expected
