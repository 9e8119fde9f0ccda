"""The images of a network on the nodes before a switch: listed once, and pulled where they are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from k8sdds.deploy.images import fetch_images
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.ssh import Connections, ScriptResult
from tests.unit.test_network_manifests import installed, profile


@dataclass
class FakeHost:
    """A node that lists images and pulls those of a registry."""

    name: str
    images: list[str]
    registry: Sequence[str] = ()
    scripts: list[str] = field(default_factory=list)

    def run(self, script: str, timeout_s: float = 60) -> ScriptResult:
        self.scripts.append(script)
        if "uname -m" in script:
            return ScriptResult(0, "\n".join(["x86_64", *self.images]), "")
        refused = [line.split()[5] for line in script.splitlines() if " pull " in line]
        refused = [image for image in refused if image not in self.registry]
        return ScriptResult(int(bool(refused)), "", "".join(f"cannot get {image}\n" for image in refused))


@dataclass
class FakeConnections:
    """Connections to such nodes."""

    hosts: dict[str, FakeHost]

    def all(self, work: Callable[[Any], Any], names: Sequence[str]) -> dict[str, Any]:
        return {name: work(self.hosts[name]) for name in names}


def fetch(*hosts: FakeHost) -> None:
    connections = FakeConnections({host.name: host for host in hosts})
    wanted = profile("flannel-hostgw")
    names = [host.name for host in hosts]
    fetch_images(wanted, installed("flannel-hostgw"), cast(Connections, connections), names, lambda _: None)


def test_images_are_listed_once_and_pulled_only_where_they_are_missing() -> None:
    wanted = installed("flannel-hostgw").images
    complete, empty = FakeHost("a", [*wanted, "other"]), FakeHost("b", ["other"], wanted)
    fetch(complete, empty)
    assert len(complete.scripts) == 1 and len(empty.scripts) == 2
    assert all(f"pull {image} " in empty.scripts[1] for image in wanted)


def test_an_image_that_a_node_cannot_get_prevents_the_switch() -> None:
    wanted = installed("flannel-hostgw").images
    with pytest.raises(
        PrerequisiteError, match=f"b: cannot run flannel-hostgw:\ncannot get {wanted[0]}"
    ) as caught:
        fetch(FakeHost("a", list(wanted)), FakeHost("b", list(wanted[1:])))
    assert "nothing was changed" in caught.value.remedy
