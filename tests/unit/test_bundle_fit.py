"""Check the architectures of a profile's bundle and the apt sources for another suite."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.bundle.create import architectures_of
from k8sdds.bundle.packages import distribution_entries
from k8sdds.deploy import profiles
from k8sdds.model.kubernetes import Kubernetes
from k8sdds.model.profile import Node
from k8sdds.system.errors import InputError


def test_the_architectures_of_a_profile() -> None:
    profile = profiles.load("edge-lab")
    assert sorted(architectures_of(profile, [])) == ["amd64", "arm64"]
    assert architectures_of(profile, ["arm64", "amd64"]) == ["arm64", "amd64"]
    with pytest.raises(InputError, match="arm64 machines, but --arch"):
        architectures_of(profile, ["amd64"])
    silent = profile.model_copy(update={"nodes": [Node(name="one", roles=["control-plane"])]})
    with pytest.raises(InputError, match="does not specify"):
        architectures_of(silent, [])
    assert architectures_of(silent, ["arm64"]) == ["arm64"]
    assert architectures_of(profiles.load("one-machine"), []) == [HOST_ARCH]
    other = profile.model_copy(update={"kubernetes": Kubernetes(version="1.35.1")})
    with pytest.raises(InputError, match=r"requires Kubernetes 1\.35\.1"):
        architectures_of(other, [])


SOURCES = Path(__file__).parent / "recorded" / "apt"
DEB822, LINES = ((SOURCES / f"debian.{kind}").read_text() for kind in ("sources", "list"))


def test_entries_of_the_distribution_in_apt_sources() -> None:
    assert [entry.split("\n")[1] for entry in distribution_entries(DEB822, True, "bookworm")] == [
        "URIs: http://mirror.example/debian", "URIs: http://mirror.example/debian-security",
    ]  # fmt: skip
    assert distribution_entries(LINES, False, "bookworm") == [LINES.splitlines()[1], LINES.splitlines()[3]]
    assert distribution_entries(LINES, False, "") == []
