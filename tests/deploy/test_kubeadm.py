"""kubeadm's configuration in both of its versions, judged by a real kubeadm: strictly, down to unknown fields."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from k8sdds import bundle
from k8sdds.bundle.contents import HOST_ARCH
from k8sdds.deploy import facts, network_install
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.deploy.phases import kubeadm
from k8sdds.deploy.software import Software
from k8sdds.model.profile import Profile
from k8sdds.system import yaml_text
from tests.unit.test_preflight import PROFILE, changed

Validate = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cached() -> bundle.Bundle:
    return bundle.cached_bundle((HOST_ARCH,))


@pytest.fixture
def validate(cached: bundle.Bundle, tmp_path: Path) -> Validate:
    """`kubeadm config validate` of the bundle's kubeadm."""
    (program,) = [cached.file(item) for item in cached.binaries(HOST_ARCH) if item.name == "kubernetes"]
    kubeadm, config = tmp_path / "kubeadm", tmp_path / "config.yaml"
    kubeadm.symlink_to(program)

    def run(text: str) -> subprocess.CompletedProcess[str]:
        config.write_text(text)
        command = [str(kubeadm), "config", "validate", "--config", str(config)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return run


@pytest.mark.parametrize(("lists_from", "api"), [(31, "v1beta4"), (99, "v1beta3")])
@pytest.mark.parametrize("roles", ["[control-plane]", "[control-plane, worker]"])
def test_kubeadm_accepts_the_configuration(
    validate: Validate,
    cached: bundle.Bundle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    lists_from: int,
    api: str,
    roles: str,
) -> None:
    monkeypatch.setattr(kubeadm, "ARGUMENT_LISTS_FROM_MINOR", lists_from)
    # kubeadm requires the discovery file, which deploy writes on the node.
    monkeypatch.setattr(kubeadm, "DISCOVERY_FILE", str(tmp_path / "discovery.conf"))
    (tmp_path / "discovery.conf").touch()
    profile = yaml_text.parse(PROFILE.replace("[control-plane]", roles), Profile, "mine.yaml")
    # The recorded machine has cgroup v1, which requires additional settings.
    machines = {
        node.name: facts.parse(changed(containerd="1.6.20", address=f"eth0 192.0.2.{number}/24"))
        for number, node in enumerate(profile.nodes, 1)
    }
    state = DesiredState(profile, machines, Software(profile, cached), network_install.render(profile))
    for text in (kubeadm.configuration(state), kubeadm.join_configuration(state, profile.node("pi1"))):
        assert f"kubeadm.k8s.io/{api}" in text
        done = validate(text)
        assert (done.returncode, done.stdout.strip()) == (0, "ok"), done.stderr
        broken = validate(text.replace('"nodeRegistration"', '"registration"'))
        assert broken.returncode and 'unknown field "registration"' in broken.stderr
