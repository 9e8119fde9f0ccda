"""The published logs of the paper: its tables, and an account of every file."""

from __future__ import annotations

import hashlib
import json
from collections import Counter

import pandas as pd
import pytest

from k8sdds.importing import import_folder
from k8sdds.report import content, csv_tables, write_report
from k8sdds.results import tidy
from tests.run_folders import PAYLOADS, TABLE_I, TABLE_II

BEST_EFFORT_P90_US = {
    "host": (616, 673, 881, 1288, 2371),
    "flannel-vxlan": (850, 915, 1123, 1652, 3183),
    "flannel-hostgw": (721, 788, 995, 1561, 3049),
    "kube-router": (710, 777, 986, 1578, 3119),
    "weavenet": (961, 1015, 1220, 1771, 3315),
}


@pytest.fixture(scope="module")
def best(imported):
    return pd.DataFrame(tidy.best(tidy.rows(imported.run)))


@pytest.fixture(scope="module")
def tables(imported, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    csv_tables.write(content.read(imported.run), folder)
    return folder


def plain(table: pd.DataFrame) -> pd.DataFrame:
    usual = {"transport": "unicast", "reliability": "reliable", "subscribers": 1, "batch_bytes": 0}
    for name in usual.keys() & set(table):  # the others are in conditions.csv
        table = table[table[name] == usual[name]]
    return table


@pytest.mark.parametrize(
    ("name", "printed"), [("throughput_overhead", TABLE_I), ("latency_p90_overhead", TABLE_II)]
)
def test_the_tables_of_the_paper_are_reproduced(tables, name, printed):
    table = plain(pd.read_csv(tables / f"{name}_by_run.csv"))
    first = table[(table.run == 1) & table.payload_bytes.isin(PAYLOADS)]
    result = first.pivot(index="network", columns="payload_bytes", values="overhead_percent").round(1)
    for network, values in printed.items():
        assert tuple(result.loc[network]) == values
    assert first.ci_low_percent.isna().all(), "one run carries no interval"


def test_best_effort_latencies_of_figure_6(best):
    rows = best[(best.reliability == "best-effort") & (best.test == "latency") & (best.repetition == 0)]
    for network, values in BEST_EFFORT_P90_US.items():
        own = rows[rows.network_label == network].set_index("payload_bytes")
        assert tuple(own.latency_p90_us[list(PAYLOADS)]) == values


def test_other_runs_are_repetitions_with_intervals(tables):
    table = plain(pd.read_csv(tables / "throughput_overhead.csv"))
    repeated = table[table.network.isin(TABLE_I) & (table.payload_bytes <= 16384)]
    assert set(repeated.n) == {2}, "run2 is a copy, run3 is not"
    assert repeated.ci_low_percent.notna().all() and repeated.ci_high_percent.notna().all()
    alone = table[table.network == "baremetal"]
    assert set(alone.n) == {1} and alone.ci_low_percent.isna().all()


def test_every_file_is_accounted_for_and_copied_unchanged(artifact, imported):
    account = json.loads((imported.run.path / "import.json").read_text())
    originals = {path.relative_to(artifact): path for path in artifact.rglob("*") if path.is_file()}
    assert {file["path"] for file in account["files"]} == {str(path) for path in originals}
    assert all(file["used"] for file in account["files"])
    kept = Counter(
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (imported.run.path / "raw").rglob("*")
        if path.is_file()
    )
    assert kept == Counter(hashlib.sha256(path.read_bytes()).hexdigest() for path in originals.values())


def test_the_account_is_consistent_and_copies_count_once(imported):
    account, attempts = imported.account, imported.run.attempts()
    assert account["files"] == 1106 == sum(account["by_kind"].values())
    assert account["by_kind"] == {"log": 874, "metrics": 230, "note": 2}
    assert account["trials"] == 349 == account["valid"] + sum(account["invalid"].values())
    assert account["invalid"] == {"copy": 60, "set-aside": 28, "error": 4}
    assert len(attempts) == 349 == len({attempt["trial_id"] for attempt in attempts})
    assert {attempt["experiment_folder"] for attempt in attempts} == {"BestEffort", "CNI-Test"}
    copy = "CNI-Test/run2/throughputTest/weavenet-udp/test-0"
    assert f"{copy} is a byte-for-byte copy of {copy.replace('run2/', '')}" in imported.copies
    valid = [trial for trial in imported.trials if trial.record.valid]
    logs = [source.sha256 for trial in valid for source in trial.bundle.logs.values()]
    assert len(imported.copies) == 60 and len(logs) == len(set(logs))


def test_a_note_makes_a_variant_and_not_a_backup(best):
    rows = best[best.network_label == "weavenet-1376"]
    assert set(rows.network) == {"weavenet"} and set(rows.mtu_bytes) == {1376}
    assert set(rows.transport) == {"unicast", "multicast"}


def test_kubectl_top_is_kept_with_its_trial(imported):
    trial = next(
        attempt for attempt in imported.run.attempts()
        if attempt["source"] == "CNI-Test/throughputTest/flannel-vxlan-udp/test-2"
    )  # fmt: skip
    assert trial["nodes_top"]["raspberrypi87"]["cpu_millicores_avg"] == 1334.68
    assert trial["nodes_top"]["raspberrypi89"]["memory_mib_p95"] == 608
    assert trial["publisher_host_cpu_percent"] == 27.88
    assert trial["machine_cpu_percent"] is None, "no log says on which node the publisher ran"


@pytest.mark.long
def test_a_report_of_single_runs_has_figures(artifact, tmp_path):
    done = import_folder(artifact / "CNI-Test" / "latencyTest", tmp_path / "run")
    folder = write_report(done.run, None).parent
    assert any("latency" in path.name for path in (folder / "figures").glob("*.png"))
    page = (folder / "report.html").read_text()
    assert "Single runs" in page and "imported: published data" in page


def test_the_command_prints_the_tables(k8sdds, artifact):
    done = k8sdds("import", str(artifact), "--output", "paper")
    assert done.returncode == 0, done.stderr
    for network, values in (*TABLE_I.items(), *TABLE_II.items()):
        numbers = r"\s+".join(str(value).replace(".", r"\.") for value in values)
        assert pd.Series([done.stdout]).str.contains(rf"{network}\s+{numbers}\s").item(), (network, values)
    assert "60 repetitions are copies" in done.stdout
    again = k8sdds("import", str(artifact), "--output", "paper")
    assert again.returncode == 2 and "already exists" in again.stderr
