"""The mode of kube-proxy on a cluster, as its ConfigMap shows it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from k8sdds.kubernetes.client import ApiError, KubernetesClient
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
    def get(path: str) -> dict[str, Any]:
        assert path == "/api/v1/namespaces/kube-system/configmaps/kube-proxy"
        if config is None:
            raise ApiError(404, "not found")
        return {"data": {"config.conf": config}}

    client = SimpleNamespace(get=get)
    assert installed.proxy_mode(cast(KubernetesClient, client)) == mode
