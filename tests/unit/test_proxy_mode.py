"""The mode of kube-proxy on a cluster, as its ConfigMap shows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.testbeds.cluster import installed


@pytest.mark.parametrize(
    ("config", "mode"),
    [
        ("kind: KubeProxyConfiguration\nmode: nftables\n", "nftables"),
        ('mode: ""\n', "iptables"),
        ("mode: userspace\n", None),
        ("metricsBindAddress: ''\n", "iptables"),
        ("[", None),
        (None, None),
    ],
)
def test_the_mode_of_kube_proxy_is_detected(config: str | None, mode: str | None) -> None:
    def find(path: str) -> dict[str, Any] | None:
        assert path == "/api/v1/namespaces/kube-system/configmaps/kube-proxy"
        return None if config is None else {"data": {"config.conf": config}}

    client = SimpleNamespace(is_allowed=lambda *_, **__: True, find=find)
    assert installed.proxy_mode(cast(KubernetesClient, client)) == mode
