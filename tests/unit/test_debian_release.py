"""Nodes, images and bundles are built from the Debian release of this machine, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.bundle import cached_bundle
from k8sdds.nodes import rootfs
from k8sdds.system import debian_release
from k8sdds.system.errors import PrerequisiteError

TRIXIE = """\
PRETTY_NAME="Debian GNU/Linux 13 (trixie)"
NAME="Debian GNU/Linux"
VERSION_ID="13"
VERSION="13 (trixie)"
VERSION_CODENAME=trixie
ID=debian
"""
UBUNTU = """\
PRETTY_NAME="Ubuntu 24.04.3 LTS"
NAME="Ubuntu"
VERSION_CODENAME=noble
ID=ubuntu
ID_LIKE=debian
"""
SID = 'PRETTY_NAME="Debian GNU/Linux forky/sid"\nVERSION_CODENAME=forky\nID=debian\n'


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that takes the place of /etc/os-release."""
    path = tmp_path / "os-release"
    monkeypatch.setattr(debian_release, "OS_RELEASE", path)
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    return path


def test_release_of_the_machine(machine: Path) -> None:
    machine.write_text(TRIXIE)
    release = debian_release.running("images")
    assert (release.codename, release.number) == ("trixie", 13)
    assert debian_release.codename() == "trixie"


@pytest.mark.parametrize(
    ("text", "name"), [(UBUNTU, "Ubuntu 24.04.3 LTS"), (SID, "forky/sid"), ("", "unknown")]
)
def test_other_distributions_are_refused(machine: Path, text: str, name: str) -> None:
    machine.write_text(text)
    with pytest.raises(PrerequisiteError, match=rf"local nodes .* which runs .*{name}") as nodes:
        rootfs.rootfs(print)
    assert "Debian 12 or 13" in nodes.value.remedy
    with pytest.raises(PrerequisiteError, match=rf"images .* which runs .*{name}"):
        cached_bundle()


def test_machine_without_os_release(machine: Path) -> None:
    assert debian_release.codename() == ""
    with pytest.raises(PrerequisiteError, match="unknown distribution"):
        debian_release.running("images")
