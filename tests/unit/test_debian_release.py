"""Nodes, images and bundles are built from the Debian release of this machine, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds.bundle import cached_bundle
from k8sdds.nodes import rootfs
from k8sdds.system import debian_release
from k8sdds.system.errors import PrerequisiteError

TRIXIE = {"PRETTY_NAME": "Debian GNU/Linux 13 (trixie)", "VERSION_CODENAME": "trixie", "ID": "debian"}
UBUNTU = {"PRETTY_NAME": "Ubuntu 24.04.3 LTS", "VERSION_CODENAME": "noble", "ID": "ubuntu"}
SID = {"PRETTY_NAME": "Debian GNU/Linux forky/sid", "VERSION_CODENAME": "forky", "ID": "debian"}


def use_release(monkeypatch: pytest.MonkeyPatch, keys: dict[str, str] | None) -> None:
    """Let /etc/os-release have these keys; None: let it be missing."""

    def read() -> dict[str, str]:
        if keys is None:
            raise FileNotFoundError
        return keys

    monkeypatch.setattr(debian_release.platform, "freedesktop_os_release", read)


def test_release_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    use_release(monkeypatch, TRIXIE)
    release = debian_release.running("images")
    assert (release.codename, release.number) == ("trixie", 13)
    assert debian_release.codename() == "trixie"


@pytest.mark.parametrize(
    ("keys", "name"), [(UBUNTU, "Ubuntu 24.04.3 LTS"), (SID, "forky/sid"), ({}, "unknown"), (None, "unknown")]
)
def test_other_distributions_are_refused(
    keys: dict[str, str] | None, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_release(monkeypatch, keys)
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(PrerequisiteError, match=rf"local nodes .* which runs .*{name}") as nodes:
        rootfs.rootfs(print)
    assert "Debian 12 or 13" in nodes.value.remedy
    with pytest.raises(PrerequisiteError, match=rf"images .* which runs .*{name}"):
        cached_bundle()
