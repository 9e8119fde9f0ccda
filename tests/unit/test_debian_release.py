"""Nodes, images and bundles are built from the Debian release of this machine, or refused with the reason."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from k8sdds.bundle import cached_bundle
from k8sdds.nodes import rootfs
from k8sdds.system import debian_release
from k8sdds.system.errors import PrerequisiteError

TRIXIE = {"PRETTY_NAME": "Debian GNU/Linux 13 (trixie)", "VERSION_CODENAME": "trixie", "ID": "debian"}
UBUNTU = {"PRETTY_NAME": "Ubuntu 24.04.3 LTS", "VERSION_CODENAME": "noble", "ID": "ubuntu"}
SID = {"PRETTY_NAME": "Debian GNU/Linux forky/sid", "VERSION_CODENAME": "forky", "ID": "debian"}


def test_nodes_and_images_are_built_on_debian_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    read = Mock(return_value=TRIXIE)
    monkeypatch.setattr(debian_release.platform, "freedesktop_os_release", read)
    release = debian_release.running("images")
    assert (release.codename, release.number, debian_release.codename()) == ("trixie", 13, "trixie")
    for keys, name in (
        (UBUNTU, "Ubuntu 24.04.3 LTS"),
        (SID, "forky/sid"),
        ({}, "unknown"),
        (None, "unknown"),
    ):
        read.configure_mock(return_value=keys, side_effect=FileNotFoundError if keys is None else None)
        with pytest.raises(PrerequisiteError, match=rf"local nodes .* which runs .*{name}") as nodes:
            rootfs.rootfs(print)
        assert "Debian 12 or 13" in nodes.value.remedy
        with pytest.raises(PrerequisiteError, match=rf"images .* which runs .*{name}"):
            cached_bundle()
