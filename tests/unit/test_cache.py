"""Check which cache entries are kept and removed, also while local nodes use them."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from k8sdds.bundle import cache
from tests.conftest import Command

LONG_AGO_S = 10 * cache.RECENT_S


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def entry(path: Path, age_s: float, content: bytes = b"x" * 5000) -> Path:
    """Create an entry of the given age: a file if the name has a suffix, else a folder with a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix:
        path.write_bytes(content)
    else:
        path.mkdir()
        (path / "file").write_bytes(content)
    then = time.time() - age_s
    os.utime(path, (then, then))
    return path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_most_recent_entries_of_each_group_are_kept(folder: Path) -> None:
    for number in range(5):
        entry(folder / f"bundles/amd64-{number}", LONG_AGO_S + number)
        entry(folder / f"bundles/own-amd64-arm64-{number}", LONG_AGO_S + number)
        entry(folder / f"archives/amd64-{number}.tar", LONG_AGO_S + number)
    entry(folder / "programs/kubernetes-arm64-1", LONG_AGO_S)
    freed = cache.prune()
    assert names(folder / "bundles") == {
        f"{group}-{n}" for group in ("amd64", "own-amd64-arm64") for n in range(3)
    }
    assert len(names(folder / "archives")) == 5 and names(folder / "programs") == {"kubernetes-arm64-1"}
    assert freed >= 4 * 5000
    assert cache.prune() == 0


def test_recently_used_entries_are_kept(folder: Path) -> None:
    created = [entry(folder / f"unpacked/{number}", 60 + number) for number in range(5)]
    assert cache.prune() == 0 and len(names(folder / "unpacked")) == 5
    for path in created:
        os.utime(path, (0, 0))
    # Used, so it is the last that is kept.
    with cache.creating(created[3]) as missing:
        assert not missing
    cache.prune()
    assert created[3].exists() and len(names(folder / "unpacked") - {".lock"}) == cache.KEEP["unpacked"]


def test_leftovers_of_killed_commands_are_removed(folder: Path) -> None:
    old = [entry(folder / f"archives/{name}", LONG_AGO_S) for name in (".new-abc", "amd64-1.new")]
    new = entry(folder / "archives/.new-def", 10)
    entry(folder / "archives/amd64-2.tar", LONG_AGO_S)
    cache.prune()
    assert not any(path.exists() for path in old) and new.exists()
    assert (folder / "archives/amd64-2.tar").exists()


def test_entries_mounted_in_local_nodes_are_kept(folder: Path, tmp_path: Path) -> None:
    """Nodes of any state folder count; their root file system is kept, too."""
    for number in range(5):
        entry(folder / f"bundles/amd64-{number}", LONG_AGO_S + number)
        entry(folder / f"rootfs/bookworm-{number}", LONG_AGO_S + number)
    shares = [{"host": str(folder / "bundles/amd64-4"), "inside": "/bundle"}]
    record = tmp_path / "state/record.json"
    record.parent.mkdir()
    record.write_text(json.dumps({"machines": {"one": {"spec": {"shares": shares}}}}))
    (folder / "nodes/mine-1").mkdir(parents=True)
    (folder / "nodes/mine-1/owner").write_text(str(record.parent))
    cache.prune()
    assert names(folder / "bundles") == {f"amd64-{n}" for n in (0, 1, 2, 4)}
    assert len(names(folder / "rootfs")) == 5
    freed, kept = cache.empty()
    assert names(folder / "bundles") == {"amd64-4"} and kept == ["bundles", "rootfs"] and freed >= 3 * 5000
    assert (folder / "nodes/mine-1/owner").exists()
    (folder / "nodes/mine-1/owner").unlink()
    cache.prune()
    assert len(names(folder / "rootfs")) == cache.KEEP["rootfs"]
    assert cache.empty()[1] == [] and names(folder / "bundles") == set()


def test_files_shared_by_bundles_count_once(folder: Path) -> None:
    first = entry(folder / "bundles/amd64-1", LONG_AGO_S, b"x" * 100_000)
    second = folder / "bundles/amd64-2"
    second.mkdir()
    os.link(first / "file", second / "file")
    (result,) = cache.usage()
    assert (result.kind, result.things) == ("bundles", 2)
    assert 100_000 <= result.size_bytes < 150_000
    # Removing one bundle does not free the shared file.
    assert cache.remove(first) < 50_000 and (second / "file").stat().st_size == 100_000


def test_the_command_lists_and_empties_the_cache(folder: Path, k8sdds: Command) -> None:
    entry(folder / "bundles/amd64-1", LONG_AGO_S)
    (shown,) = json.loads(k8sdds("bundle", "cache", "--json").stdout)
    assert (shown["kind"], shown["things"]) == ("bundles", 1)
    refused = k8sdds("bundle", "cache", "--prune", "--empty")
    assert refused.returncode == 2 and "exclude each other" in refused.stderr
    done = k8sdds("bundle", "cache", "--empty")
    assert (
        done.returncode == 0
        and done.stdout.startswith("freed 0.0 MB\nbundles")
        and str(folder) in done.stdout
    )
    assert names(folder / "bundles") == set()


def test_a_plan_comes_first_and_numbers_its_steps(tmp_path: Path) -> None:
    def fill(report: Callable[[str], None]) -> None:
        report("why")
        for name in ("programs/kubernetes-1", "bases/two"):
            step = f"building {name}"
            with (
                contextlib.suppress(cache.NotCached),
                cache.creating(tmp_path / name, step, report) as missing,
            ):
                assert missing
                (tmp_path / name).touch()
        cache.require_all()

    lines: list[str] = []
    report = cache.planned(lines.append, fill)
    assert lines == [
        "why",
        "not in the cache yet: 2 steps, about 5 min on two idle cores",
        "  building programs/kubernetes-1 (about 5 min), bases/two",
    ]
    assert list(tmp_path.iterdir()) == [] and cache.planned(report, fill) is report
    fill(report)
    assert lines[3:] == ["[1/2] building programs/kubernetes-1 (about 5 min)", "[2/2] building bases/two"]
    assert cache.planned(lines.append, lambda report: None) and len(lines) == 5
