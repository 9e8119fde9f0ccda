"""Folders of published logs: names, maps, repetitions, and invalid logs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from k8sdds.importing import import_folder
from k8sdds.system.errors import InputError
from tests.unit.importing import logs


def trial(folder: Path, *, latency: bool = False, subs: int = 1, seed: int = 0, **settings: object) -> None:
    """Write the logs of one trial; `seed` makes its numbers unique."""
    folder.mkdir(parents=True, exist_ok=True)
    pub = logs.configuration(True, latency=latency, peers=subs, **settings)
    # The maximum, and with it the highest percentile, differs between trials.
    numbers = logs.csv_latency().replace("       60", f"{60 + seed:9}")
    (folder / "perftest-pub0.log").write_text(pub + numbers + logs.END)
    for number in range(subs):
        sub = logs.configuration(False, number=number, **settings)
        rows = logs.csv_throughput().replace("181000", str(181000 + seed)).replace("   3,", "   0,")
        (folder / f"perftest-sub{number}.log").write_text(sub + rows.replace("0.01", "0.00") + logs.END)


def imported(tmp_path: Path, **options: object) -> dict[str, dict]:
    """Import the folder and return the records by source."""
    done = import_folder(tmp_path / "in", tmp_path / "out", **options)
    assert len(done.run.attempts()) == len(done.trials)
    return {attempt["source"]: attempt for attempt in done.run.attempts()}


def test_auto_reads_names_and_repetitions(tmp_path):
    for run in (1, 2, 3):
        trial(tmp_path / "in" / "vxlan" / "1024B" / f"run{run}", seed=run)
        trial(tmp_path / "in" / "host-network" / "1024B" / f"run{run}", seed=10 + run)
    result = imported(tmp_path)
    assert {(r["network"], r["repetition"]) for r in result.values()} == {
        (network, repetition) for network in ("flannel-vxlan", "host") for repetition in range(3)
    }
    assert all(r["valid"] for r in result.values()), [r["reason"] for r in result.values()]
    one = result["vxlan/1024B/run1"]
    assert (one["test"], one["middleware"], one["middleware_version"]) == ("throughput", "connext", "7.3.0")
    assert (one["throughput_mbps"], one["loaded_latency_p90_us"], one["latency_p90_us"]) == (741.4, 57, None)
    assert one["cell_id"] == result["vxlan/1024B/run2"]["cell_id"]


def test_files_of_several_trials_in_one_folder(tmp_path):
    trial(tmp_path / "a")
    trial(tmp_path / "b", seed=1)
    (tmp_path / "in").mkdir()
    for name, network in (("a", "calico"), ("b", "cilium")):
        for file in (tmp_path / name).iterdir():
            file.rename(tmp_path / "in" / f"{network}_{file.name}")
    result = imported(tmp_path)
    assert {r["network"] for r in result.values()} == {"calico", "cilium"} and all(
        r["valid"] for r in result.values()
    )


def test_map_adds_settings_that_logs_do_not_state(tmp_path):
    trial(tmp_path / "in" / "node-a")
    (one,) = imported(tmp_path, maps=["node-a:network=antrea,repetition=2,test=latency"]).values()
    assert (one["network"], one["repetition"], one["test"]) == ("antrea", 1, "throughput")
    assert any("test latency" in text for text in one["warnings"])


def test_logs_take_precedence_over_names_with_a_warning(tmp_path):
    trial(tmp_path / "in" / "BestEffort" / "latencyTest" / "kube-router" / "test-0", latency=False)
    (one,) = imported(tmp_path, layout="k8sdds").values()
    assert (one["reliability"], one["test"], one["payload_bytes"]) == ("reliable", "throughput", 1024)
    assert len([w for w in one["warnings"] if w.startswith("name: ")]) == 3


HOST_MULTICAST = "Multicast-Test/4subs/throughputTest/hostnetwork-multicast-udp"


@pytest.mark.parametrize("backup", ["bk-datalen", "bk,sleep10", "bk1", "Backup_2"])
def test_a_backup_is_never_the_original_of_a_regular_trial(tmp_path, backup):
    regular, copy = f"{HOST_MULTICAST}/test-2", f"{HOST_MULTICAST}/{backup}/test-14"
    for folder in (copy, regular):
        trial(tmp_path / "in" / folder, subs=4, multicast="True")
    result = imported(tmp_path, layout="k8sdds")
    assert result[regular]["valid"] and not result[regular]["warnings"]
    assert (result[regular]["network_label"], result[regular]["transport"]) == ("host", "multicast")
    assert result[copy]["reason"].startswith(f"set-aside: {backup!r}")


def test_a_name_that_only_begins_like_a_backup_is_regular(tmp_path):
    names = ("bkd-cluster", "backups", "old-kernel")
    for seed, name in enumerate(names):
        trial(tmp_path / "in" / name / "host", seed=seed)
    result = imported(tmp_path)
    assert all(result[f"{name}/host"]["valid"] for name in names)


def test_an_included_backup_is_the_copy_of_a_regular_trial(tmp_path):
    regular, copy = f"{HOST_MULTICAST}/test-2", f"{HOST_MULTICAST}/bk-datalen/test-14"
    other = f"{HOST_MULTICAST}/bk-datalen/test-15"
    for seed, folder in enumerate((other, copy, regular)):
        trial(tmp_path / "in" / folder, multicast="True", seed=min(seed, 1))
    result = imported(tmp_path, layout="k8sdds", maps=["bk-datalen:keep=yes"])
    assert result[regular]["valid"] and result[other]["valid"]
    assert result[copy]["reason"] == f"copy: its log is a byte-for-byte copy of {regular}"


@pytest.mark.parametrize(
    "text", ["x", "a:b", "a:netwrok=x", "a:repetition=0", "a:payload_bytes=-1", ":network=x", "a:test=both"]
)
def test_invalid_maps_are_rejected(tmp_path, text):
    trial(tmp_path / "in" / "host")
    with pytest.raises(InputError):
        imported(tmp_path, maps=[text])
    assert not (tmp_path / "out").exists()


def test_an_import_that_fails_leaves_no_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    trial(tmp_path / "in" / "host")
    (tmp_path / "file").touch()
    for source, target, message in (
        ("empty", "out", "contains no log"), ("nowhere", "out", "does not exist"), ("in", "file/out", "cannot write"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            import_folder(tmp_path / source, tmp_path / target)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "in"]


def test_subscribers_are_averaged_and_all_required(tmp_path):
    trial(tmp_path / "in" / "host", subs=4)
    trial(tmp_path / "in" / "weavenet", subs=4, seed=1)
    (tmp_path / "in" / "weavenet" / "perftest-sub2.log").unlink()
    result = imported(tmp_path)
    assert result["host"]["valid"] and result["host"]["subscribers"] == 4
    assert result["host"]["received"] == 4 * 181000
    assert result["weavenet"]["reason"] == "missing-log: 4 subscribers took part, 3 left a log"


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("            0,             0.00", "            7,             0.00", "lost-samples"),
        ("Reliability: Reliable", "Reliability: Best Effort", "contradiction"),
        ("Data Size: 1024", "Data Size: 2048", "contradiction"),
        ("        181005", "             0", "no-samples"),
        ("741.4", "147.4", "damaged"),
        ("Test ended.", "command terminated with exit code 137", "error"),
        ("0.00,    8.78\n" + logs.END, "0.0", "truncated"),
    ],
)
def test_invalid_logs_have_a_reason(tmp_path, old, new, word):
    trial(tmp_path / "in" / "host", seed=5)
    path = tmp_path / "in" / "host" / "perftest-sub0.log"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    (one,) = imported(tmp_path).values()
    assert not one["valid"] and one["reason"].startswith(f"{word}:"), one["reason"]


def test_unreadable_files_are_counted_and_do_not_stop_the_import(tmp_path):
    trial(tmp_path / "in" / "host")
    (tmp_path / "in" / "photo.png").write_bytes(b"\x89PNG\0\0")
    (tmp_path / "in" / "empty.log").touch()
    (tmp_path / "in" / "link.log").symlink_to("/etc/passwd")
    (tmp_path / "in" / "host" / "metrics.csv").write_text("name,cpu(cores)(avg)\nnode,x\n")
    done = import_folder(tmp_path / "in", tmp_path / "out")
    assert done.account["valid"] == 1 and done.account["not_understood"] == 4
    assert (tmp_path / "out" / "raw" / "other" / "photo.png").read_bytes() == b"\x89PNG\0\0"
    assert not list((tmp_path / "out").rglob("link.log"))


def test_copies_by_bytes_and_by_numbers(tmp_path):
    for run in (1, 2, 3):
        trial(tmp_path / "in" / "host" / f"run{run}", latency=True, seed=3)
    path = tmp_path / "in" / "host" / "run3" / "perftest-pub0.log"
    path.write_text("a note of the authors\n" + path.read_text())
    path = tmp_path / "in" / "host" / "run3" / "perftest-sub0.log"
    path.write_text("a note of the authors\n" + path.read_text())
    result = imported(tmp_path)
    assert result["host/run1"]["valid"]
    assert result["host/run2"]["reason"] == "copy: its log is a byte-for-byte copy of host/run1"
    assert result["host/run3"]["reason"] == "copy: its log has the same numbers as host/run1"


def test_names_that_are_not_utf8(tmp_path):
    trial(tmp_path / "in" / "host")
    folder = os.fsencode(tmp_path / "in") + b"/caf\xe9-\xff"
    os.rename(tmp_path / "in" / "host", folder)
    done = import_folder(tmp_path / "in", tmp_path / "out")
    assert done.run.attempts()[0]["source"] == "caf\\xe9-\\xff" and done.account["valid"] == 1


def test_an_output_within_the_source_is_not_read(tmp_path):
    trial(tmp_path / "in" / "host")
    import_folder(tmp_path / "in", tmp_path / "in" / "out")
    done = import_folder(tmp_path / "in", tmp_path / "second", skip=["out"])
    assert done.account["trials"] == 1 and done.account["skipped"] > 0


def test_an_imported_folder_cannot_be_resumed(tmp_path, k8sdds):
    trial(tmp_path / "in" / "host")
    assert "would write runs/" in k8sdds("import", "in", "--dry-run").stdout
    planned = k8sdds("import", "in", "-o", "out", "--dry-run")
    assert not (tmp_path / "out").exists()
    imported = k8sdds("import", "in", "-o", "out")
    assert imported.returncode == 0
    assert planned.stdout == imported.stdout.replace("Next: k8sdds report out", "would write out")
    done = k8sdds("run", "--resume", "out")
    assert done.returncode == 2 and "imported" in done.stderr


RECORDED = Path(__file__).parents[1] / "recorded"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("latency", {"test": "latency", "subscribers": 1, "transport": "unicast"}),
        ("multicast", {"test": "throughput", "subscribers": 2, "transport": "multicast"}),
        ("paced", {"test": "paced", "subscribers": 2, "rate": 400, "duration_s": 0.5}),
    ],
)
def test_output_of_k8sdds_perftest_states_its_settings(tmp_path: Path, name: str, expected: dict) -> None:
    folder = tmp_path / "in" / "host"
    folder.mkdir(parents=True)
    for output in (RECORDED / name).glob("*/stdout"):
        (folder / f"{output.parent.name}.json").write_bytes(output.read_bytes())
    (trial,) = imported(tmp_path).values()
    common = {"middleware": "cyclonedds", "middleware_version": "0.10.2", "perftest_version": "0.1.0"}
    assert trial["valid"], trial["reason"]
    assert {key: trial[key] for key in (*expected, *common)} == expected | common
    if name == "paced":
        # The delays of one subscriber have quantities; those of several are in their histograms.
        (folder / "sub1.json").unlink()
        for path in folder.iterdir():
            path.write_text(path.read_text().replace('"numSubscribers":2', '"numSubscribers":1'))
        (trial,) = import_folder(tmp_path / "in", tmp_path / "one").run.attempts()
        assert (trial["valid"], trial["delay_p90_us"], trial["delay_p99_us"]) == (True, 215.295, None)
