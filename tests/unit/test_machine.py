"""Name the machine of a run folder, from recorded facts of machines, clusters and old versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from k8sdds.results.machine import SWITCH_SINCE, has_old_switch, machine_identity
from k8sdds.results.run_folder import CAMPAIGN, RunFolder

RECORDED = Path(__file__).parent / "recorded" / "version-0.1.0" / "run-folder"
NODE = {"cpu_model": "Cortex-A72", "cpu_count": 4, "kernel": "6.12.1", "kernelVersion": "6.12.1"}
IDLE = {"boot_id": "b", "architecture": "arm64", "kernelVersion": "5.15.0"}
CLUSTER = {"cluster_uid": "7c2e", "nodes": {"n1": NODE, "n2": NODE, "idle": IDLE}}


def run_with(folder: Path, testbed: Any, schema: int = SWITCH_SINCE) -> RunFolder:
    campaign = json.loads((RECORDED / CAMPAIGN).read_text()) | {"testbed": testbed, "schema": schema}
    (folder / CAMPAIGN).write_text(json.dumps(campaign))
    return RunFolder(folder)


def test_a_run_folder_of_the_first_version_names_its_machine(tmp_path: Path) -> None:
    shutil.copy(RECORDED / CAMPAIGN, tmp_path)
    found = machine_identity(RunFolder(tmp_path))
    assert found == "Intel(R) Xeon(R) Processor, 2 cores, kernel 6.18.44-fc-v470"
    assert has_old_switch(RunFolder(tmp_path))


@pytest.mark.parametrize(
    ("changed", "differs"),
    [
        ({"boot_id": "another"}, False),
        ({"load_1m": 0.0}, False),
        ({"kernel": "6.18.45"}, True),
        ({"cpu_count": 4}, True),
        ({"cpu_model": "Cortex-A72"}, True),
    ],
)
def test_machines_differ_in_processor_cores_and_kernel(
    tmp_path: Path, changed: dict[str, Any], differs: bool
) -> None:
    testbed = json.loads((RECORDED / CAMPAIGN).read_text())["testbed"]
    one = machine_identity(run_with(tmp_path, testbed))
    other = machine_identity(run_with(tmp_path, testbed | {"facts": testbed["facts"] | changed}))
    assert (one != other) == differs


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (CLUSTER, "cluster 7c2e; Cortex-A72, 4 cores, kernel 6.12.1"),
        # The number of nodes does not change the machine, but another kind of node does.
        (CLUSTER | {"nodes": {"n1": NODE}}, "cluster 7c2e; Cortex-A72, 4 cores, kernel 6.12.1"),
        (
            CLUSTER | {"nodes": {"n1": NODE, "n2": NODE | {"cpu_model": "Cortex-A76"}}},
            "cluster 7c2e; Cortex-A72, 4 cores, kernel 6.12.1; Cortex-A76, 4 cores, kernel 6.12.1",
        ),
        # Without pods at the start, only what the API server reports is known.
        ({"cluster_uid": "7c2e", "nodes": {"n1": IDLE}}, "cluster 7c2e; unknown CPU, unknown cores, kernel 5.15.0"),
        # This user may neither read kube-system nor list nodes.
        (
            {"cluster_uid": None, "nodes": {"n2": NODE, "n1": NODE}},
            "cluster of n1, n2; Cortex-A72, 4 cores, kernel 6.12.1",
        ),
        ({"cpu_model": "Cortex-A72"}, "Cortex-A72, unknown cores, kernel unknown"),
    ],
)  # fmt: skip
def test_a_cluster_is_named_by_its_uid_and_the_nodes_that_carried_pods(
    tmp_path: Path, facts: dict[str, Any], expected: str
) -> None:
    assert machine_identity(run_with(tmp_path, {"name": "cluster", "facts": facts})) == expected


def test_nodes_of_one_kernel_had_another_switch(tmp_path: Path) -> None:
    for boot_ids, old in (
        (("b", "b"), True),
        (("b", "c"), False),
        ((None, None), False),
        (("b", None), False),
    ):
        nodes = {name: NODE | {"boot_id": boot_id} for name, boot_id in zip("xy", boot_ids, strict=True)}
        testbed = {"name": "cluster", "facts": {"cluster_uid": "7c2e", "nodes": nodes}}
        assert [has_old_switch(run_with(tmp_path, testbed, schema)) for schema in (2, 3)] == [old, False]


@pytest.mark.parametrize("testbed", [{"name": "import", "facts": {}}, {"name": "lab"}, "lab", None])
def test_a_run_folder_that_does_not_name_its_machine_has_none(tmp_path: Path, testbed: Any) -> None:
    assert machine_identity(run_with(tmp_path, testbed)) is None
