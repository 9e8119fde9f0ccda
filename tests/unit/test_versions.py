"""Manifests, container recipes and Go modules must use the versions and images of k8sdds.versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from k8sdds import versions

ROOT = Path(__file__).parents[2]
IMAGES = [value for name, value in vars(versions).items() if name.endswith("_IMAGE")]
MODULES = {
    "coredns": ("github.com/coredns/coredns", versions.COREDNS),
    "etcd": ("go.etcd.io/etcd/server/v3", versions.ETCD),
    "flanneld": ("github.com/flannel-io/flannel", versions.FLANNEL),
    "kubernetes": ("k8s.io/kubernetes", versions.KUBERNETES),
    "metrics-server": ("sigs.k8s.io/metrics-server", versions.METRICS_SERVER),
}


@pytest.mark.parametrize("image", IMAGES)
def test_manifests_use_the_image(image: str) -> None:
    name = image.rpartition(":")[0]
    manifests = [*ROOT.glob("deploy/**/*.yaml"), ROOT / "perftest-images/connext/Containerfile"]
    result = [
        line for path in manifests for line in re.findall(rf"\b{re.escape(name)}:\S+", path.read_text())
    ]
    assert set(result) <= {image}


@pytest.mark.parametrize("program", MODULES)
def test_go_modules_pin_the_version(program: str) -> None:
    module, version = MODULES[program]
    text = (ROOT / "deploy" / "bundle" / program / "go.mod").read_text()
    assert f"{module} v{version}" in text


def test_metrics_server_has_the_port() -> None:
    text = (ROOT / "deploy/metrics-server/manifest.yaml").read_text()
    assert f"--secure-port={versions.METRICS_SERVER_PORT}\n" in text
    assert f"containerPort: {versions.METRICS_SERVER_PORT}}}" in text
