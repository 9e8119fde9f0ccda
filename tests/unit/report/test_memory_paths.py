"""Reports name what pods need to share memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k8sdds.report import content, memory_paths
from k8sdds.report.table import Table
from tests import run_folders as folders


def tables(tmp_path: Path, **values: Any) -> list[Table]:
    """Return the tables of a run whose trials all have these values."""
    plan = folders.Plan(("host", "flannel-vxlan"), (1024,), ("throughput",), 2, histograms=False)
    run = folders.changed(folders.make(tmp_path / "run", plan), {"transport": "shared-memory"} | values)
    return memory_paths.tables(content.read(run))


def rows(tmp_path: Path, **values: Any) -> list[list[str]]:
    """Return the rows of these tables."""
    return [[cell.text for cell in row] for table in tables(tmp_path, **values) for row in table.rows]


@pytest.mark.parametrize(
    ("middleware", "dev_shm", "users", "missing"),
    [
        ("fastdds", "shared", "same", {"host": "unknown", "flannel-vxlan": "hostNetwork: true, or one pod"}),
        (
            "fastdds",
            "own",
            "same",
            {"host": "one /dev/shm", "flannel-vxlan": "hostNetwork: true, or one pod; one /dev/shm"},
        ),
        ("zenoh", "own", "same", {"host": "one /dev/shm", "flannel-vxlan": "one /dev/shm"}),
        (
            "fastdds",
            "shared",
            "other",
            {
                "host": "one user id (runAsUser)",
                "flannel-vxlan": "hostNetwork: true, or one pod; one user id (runAsUser)",
            },
        ),
    ],
)
def test_the_report_names_the_settings_to_change(
    tmp_path: Path, middleware: str, dev_shm: str, users: str, missing: dict[str, str]
) -> None:
    found = rows(tmp_path, middleware=middleware, dev_shm=dev_shm, users=users, samples_by="network")
    assert {row[1]: row[-1] for row in found} == missing
    assert {(row[0], row[2], row[3], row[5]) for row in found} == {
        (
            middleware,
            "shared" if dev_shm == "shared" else "its own",
            "one" if users == "same" else "one each",
            "network",
        )
    }


def test_samples_in_memory_need_no_change(tmp_path: Path) -> None:
    found = rows(tmp_path, middleware="zenoh", dev_shm="shared", users="same", samples_by="memory")
    assert {row[-1] for row in found} == {"–"}


def test_the_report_of_one_user_id_states_that_containers_need_it(tmp_path: Path) -> None:
    (table,) = tables(tmp_path, middleware="fastdds", dev_shm="own", users="same", samples_by="network")
    assert "All containers need the same user id." in table.under
