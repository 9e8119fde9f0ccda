"""Cost of protection, on generated trials with known costs."""

import pytest

from k8sdds.analysis.conditions import CONDITION
from k8sdds.analysis.overhead import protections

NETWORKS = {
    "kube-router": {"name": "kube-router", "unprotected": None},
    "flannel-hostgw": {"name": "flannel-hostgw"},
    "flannel-ipsec (kernel ESP)": {"name": "flannel-ipsec", "unprotected": "flannel-hostgw"},
    "weavenet-encrypt": {"name": "weavenet-encrypt", "unprotected": "weavenet"},
}
USUAL = dict.fromkeys(CONDITION) | {"test": "throughput", "payload_bytes": 64, "security": "none"}


def trial(label, mbps, repetition=0, **more):
    return USUAL | {"network_label": label, "throughput_mbps": mbps, "repetition": repetition} | more


def found(*trials):
    rows = protections(list(trials), NETWORKS)
    return {(row["network_label"], row["security"]): row for row in rows}


def test_protected_cells_are_compared_with_unprotected_cells():
    rows = found(
        trial("kube-router", 100), trial("kube-router", 60, security="SignRTPS"),
        trial("flannel-hostgw", 200), trial("flannel-ipsec (kernel ESP)", 50),
        trial("flannel-ipsec (kernel ESP)", 20, security="SignRTPS"),
    )  # fmt: skip
    costs = {key: (row["against"], pytest.approx(row["overhead_percent"])) for key, row in rows.items()}
    assert costs == {
        ("kube-router", "SignRTPS"): ("kube-router", 40),
        ("flannel-ipsec (kernel ESP)", "none"): ("flannel-hostgw", 75),
        # DDS Security and an encrypting network are compared with neither.
        ("flannel-ipsec (kernel ESP)", "SignRTPS"): ("flannel-hostgw", 90),
    }


def test_only_equal_conditions_and_repetitions_are_compared():
    rows = found(
        *(trial("kube-router", 100 + r, r) for r in range(3)),
        *(trial("kube-router", (100 + r) / 2, r, security="SignRTPS") for r in range(2)),
        trial("kube-router", 1, 7, security="SignRTPS"),
        trial("kube-router", 1, 0, security="EncryptRTPS", payload_bytes=128),
        trial("weavenet-encrypt", 5),
    )
    assert list(rows) == [("kube-router", "SignRTPS")]
    assert rows["kube-router", "SignRTPS"]["n"] == 2
    assert rows["kube-router", "SignRTPS"]["overhead_percent"] == pytest.approx(50)
