"""Measure pods with and without a CPU limit on a real cluster, whose kubelets set the limit."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from k8sdds import versions
from k8sdds.kubernetes.client import CORE, KubernetesClient
from tests.cluster.conftest import User
from tests.measuring import ENDS_S, experiment, last_attempts, running

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.long]

LIMITED = """\
  - networks: flannel-vxlan
    test: throughput
    middleware: cyclonedds
    payload_bytes: 1024
    cpu_quota: [500m, none]
    cpu_request: [none, 250m]
"""
PARTICIPANTS = ("pub0", "sub0")
PODS = f"{versions.MANAGED_BY_LABEL}={versions.MANAGED_BY},{versions.PARTICIPANT_LABEL} in ({','.join(PARTICIPANTS)})"


def test_pods_have_the_limits_of_their_trial(user: User, admin: KubernetesClient, tmp_path: Path) -> None:
    (tmp_path / "limits.yaml").write_text(experiment(LIMITED, baseline="flannel-vxlan"))
    seen = set()
    with running(tmp_path, "limits.yaml", *user.options, "-o", "out") as process:
        while process.poll() is None:
            for pod in admin.get(f"{CORE}/pods", labelSelector=PODS)["items"]:
                (container,) = pod["spec"]["containers"]
                limit, request = (container["resources"][kind].get("cpu") for kind in ("limits", "requests"))
                seen.add((pod["metadata"]["labels"][versions.PARTICIPANT_LABEL], limit, request))
            time.sleep(0.1)
        _, errors = process.communicate(timeout=ENDS_S)
    assert process.returncode == 0, errors
    asked = {("500m", "50m"), ("500m", "250m"), (None, "50m"), (None, "250m")}
    assert seen == {(name, *limits) for name in PARTICIPANTS for limits in asked}
    for record in last_attempts(tmp_path / "out"):
        assert record["valid"], record["reason"]
        if record["cpu_quota"] is None:
            assert record.get("throttling") is record.get("throttled_periods_percent") is None
            continue
        # A publisher as fast as possible uses its quota in each period.
        publisher = record["throttling"]["pub0"]
        assert publisher["periods"] >= publisher["throttled_periods"] > 0 and publisher["throttled_s"] > 0
        assert record["throttled_periods_percent"] > 0
        # Nothing outside of the pods reads when they are stopped.
        assert record.get("slow_stopped_percent") is None
