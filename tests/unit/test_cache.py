"""The cache of bundles: what is kept, what goes, and what standing local nodes still see."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from k8sdds.bundle import cache
from tests.conftest import Command

LONG_AGO_S = 10 * cache.RECENT_S


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def thing(path: Path, age_s: float, content: bytes = b"x" * 5000) -> Path:
    """A folder with a file, last used so long ago; a .tar is a file."""
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


def test_the_last_few_of_each_group_are_kept(folder: Path) -> None:
    for number in range(5):
        thing(folder / f"bundles/amd64-{number}", LONG_AGO_S + number)
        thing(folder / f"bundles/own-amd64-arm64-{number}", LONG_AGO_S + number)
        thing(folder / f"archives/amd64-{number}.tar", LONG_AGO_S + number)
    thing(folder / "programs/kubernetes-arm64-1", LONG_AGO_S)
    freed = cache.prune()
    assert names(folder / "bundles") == {f"{group}-{n}" for group in ("amd64", "own-amd64-arm64") for n in range(3)}
    assert len(names(folder / "archives")) == 5 and names(folder / "programs") == {"kubernetes-arm64-1"}
    assert freed >= 4 * 5000
    assert cache.prune() == 0


def test_what_was_used_lately_is_kept(folder: Path) -> None:
    made = [thing(folder / f"unpacked/{number}", 60 + number) for number in range(5)]
    assert cache.prune() == 0 and len(names(folder / "unpacked")) == 5
    for path in made:
        os.utime(path, (0, 0))
    # Used, so it is the last that is kept.
    with cache.creating(made[3]) as missing:
        assert not missing
    cache.prune()
    assert made[3].exists() and len(names(folder / "unpacked") - {".lock"}) == cache.KEEP["unpacked"]


def test_what_a_killed_command_left_goes(folder: Path) -> None:
    old = [thing(folder / f"archives/{name}", LONG_AGO_S) for name in (".new-abc", "amd64-1.new")]
    new = thing(folder / "archives/.new-def", 10)
    thing(folder / "archives/amd64-2.tar", LONG_AGO_S)
    cache.prune()
    assert not any(path.exists() for path in old) and new.exists()
    assert (folder / "archives/amd64-2.tar").exists()


def test_making_marks_and_a_failure_does_not(folder: Path) -> None:
    with cache.creating(folder / "bases/one") as missing:
        assert missing
        (folder / "bases/one").mkdir()
    with pytest.raises(ValueError, match="no"), cache.creating(folder / "bases/two"):
        raise ValueError("no")
    assert names(folder / "bases") == {"one", ".lock"}
    with pytest.raises(FileNotFoundError):
        cache.mark_used(folder / "bases/two")


def test_local_nodes_keep_what_they_see(folder: Path, tmp_path: Path) -> None:
    """Of any state folder; and the root file system below them."""
    for number in range(5):
        thing(folder / f"bundles/amd64-{number}", LONG_AGO_S + number)
        thing(folder / f"rootfs/bookworm-{number}", LONG_AGO_S + number)
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


def test_what_bundles_share_counts_once(folder: Path) -> None:
    first = thing(folder / "bundles/amd64-1", LONG_AGO_S, b"x" * 100_000)
    second = folder / "bundles/amd64-2"
    second.mkdir()
    os.link(first / "file", second / "file")
    (found,) = cache.usage()
    assert (found.kind, found.things) == ("bundles", 2)
    assert 100_000 <= found.size_bytes < 150_000
    # And removing one of them frees nothing of it.
    assert cache._remove(first) < 50_000 and (second / "file").stat().st_size == 100_000


def test_the_command_shows_and_empties_it(folder: Path, k8sdds: Command) -> None:
    thing(folder / "bundles/amd64-1", LONG_AGO_S)
    (shown,) = json.loads(k8sdds("bundle", "cache", "--json").stdout)
    assert (shown["kind"], shown["things"]) == ("bundles", 1)
    refused = k8sdds("bundle", "cache", "--prune", "--empty")
    assert refused.returncode == 2 and "exclude each other" in refused.stderr
    done = k8sdds("bundle", "cache", "--empty")
    assert done.returncode == 0 and done.stdout.startswith("freed 0.0 MB\nbundles") and str(folder) in done.stdout
    assert names(folder / "bundles") == set()
