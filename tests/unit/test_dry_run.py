"""--dry-run: every command that changes something has it, and it changes nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from k8sdds import versions
from k8sdds.bundle import cache, cached_bundle, download, native, official, packages
from k8sdds.campaign import experiments
from k8sdds.campaign import run as steps
from k8sdds.cli import deploy as command
from k8sdds.cli.app import command_tree
from k8sdds.deploy import deploy as flow
from k8sdds.system import debian_release
from k8sdds.system.errors import InputError
from tests.conftest import Command
from tests.unit.test_help import LEAVES, leaves

READ_ONLY = {
    "list", "show", "docs", "schema", "runs", "compare", "history", "claims", "kubeconfig", "doctor",
    "lab plan", "lab ls", "policy",
    "network list", "network show", "nodes ls", "bundle verify", "bundle list", "artifact verify", "security show",
    "security check", "security levels",
}  # fmt: skip
RUNS_OR_WRITES_WHAT_THE_USER_NAMES = {
    "report", "logs", "lab graph", "lab exec", "nodes exec", "nodes connect", "init",
}  # fmt: skip


def test_every_command_that_changes_something_has_a_dry_run() -> None:
    assert leaves(command_tree()).keys() == LEAVES.keys()
    with_dry_run = {
        path for path, leaf in LEAVES.items() if any("--dry-run" in param.opts for param in leaf.params)
    }
    texts = {p.help for leaf in LEAVES.values() for p in leaf.params if "--dry-run" in p.opts}
    assert texts == {"Print what would be done, and change nothing."}
    assert with_dry_run == LEAVES.keys() - READ_ONLY - RUNS_OR_WRITES_WHAT_THE_USER_NAMES


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("security init credentials --subscribers 2", "would create credentials: "),
        ("testbed lab", "would select the testbed: lab"),
        ("destroy one-machine", "Nothing to destroy"),
        ("nodes up alpha --cluster mine", "would create and boot alpha of mine"),
        ("nodes down --cluster mine", ""),
        ("bundle cache --prune", "would free 0.0 MB"),
        ("clean", "Nothing to clean"),
        ("reproduce flannel-vxlan-slower", "k8sdds run"),
    ],
)
def test_a_dry_run_changes_nothing(
    k8sdds: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: str, message: str
) -> None:
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    done = k8sdds(*args.split(), "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert message in done.stdout
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_a_dry_run_finds_the_same_mistakes(k8sdds: Command, tmp_path: Path) -> None:
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials" / "mine").touch()
    for args, message in (
        ("security init credentials", "already exists"),
        ("deploy no-such-profile", "there is no profile"),
        ("reproduce flannel-vxlan-slower -o credentials", "credentials already exists"),
        ("reproduce link-reports --duration 1", "set duration_s (or --duration) to at least"),
        ("network switch one-machine host --interface e;x", "--interface e;x: expected text that matches"),
    ):
        done = k8sdds(*args.split(), "--dry-run")
        assert done.returncode == 2
        assert message in done.stderr


def test_a_dry_run_refuses_a_run_folder_that_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quickstart = experiments.load("quickstart")
    testbed: Any = SimpleNamespace(supported_subset=lambda experiment, _: (experiment, []))
    monkeypatch.setattr(steps.preflight, "check", lambda *_: [])
    (tmp_path / "mine").touch()
    with pytest.raises(InputError, match="already exists") as refused:
        steps.run(steps.Request(quickstart, "name", tmp_path, 1, dry_run=True), testbed, None)
    assert f"--resume {tmp_path}" in refused.value.remedy
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for folder in (tmp_path / "loop", tmp_path / "loop" / "run"):
        with pytest.raises(InputError, match="loop is a link to nothing, or to itself"):
            steps.run(steps.Request(quickstart, "name", folder, 1, dry_run=True), testbed, None)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let this machine be one that can build everything, with an empty cache, which must stay empty."""
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    release = next(iter(debian_release.RELEASES.values()))
    monkeypatch.setattr(debian_release, "running", lambda what: release)
    monkeypatch.setattr(native, "check", lambda arch: None)
    monkeypatch.setattr(native, "hashes", lambda arch, report: [])
    yield
    assert not list((tmp_path / "cache").rglob("*"))


@pytest.mark.parametrize(
    ("source", "unreachable", "verb"),
    [("official", "", "downloading"), ("modules", "", "building"), ("auto", "no route", "building")],
)
def test_a_frozen_cache_is_not_filled(
    empty_cache: None, monkeypatch: pytest.MonkeyPatch, source: str, unreachable: str, verb: str
) -> None:
    monkeypatch.setenv(official.VARIABLE, source)
    monkeypatch.setattr(download, "_probe", lambda host: (host, unreachable))
    notes: list[str] = []
    with cache.frozen() as missing, pytest.raises(cache.NotCached):
        cached_bundle(("amd64",), notes.append)
    steps = list(missing)
    fetched = [f"fetching Debian packages of {of} for amd64" for of in ("the base layer", "perftest:0.1.0")]
    assert [step for step in steps if step.startswith("fetching")] == fetched
    etcd = [f"{verb} etcd {versions.ETCD} for amd64"]
    assert [step for step in steps if " etcd " in step] == etcd and steps[-1] == "writing the bundle"
    assert not [step for step in steps if "kube-router" in step or "weave" in step]
    assert len(notes) == bool(unreachable) and all("no route; building from Go" in note for note in notes)
    with cache.frozen(), pytest.raises(cache.NotCached):
        packages.cached("bookworm", "amd64", notes.append)


def test_a_dry_run_of_deploy_names_the_steps_of_the_first_cluster(
    empty_cache: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(official.VARIABLE, official.MODULES)
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(flow, "machines_exist", lambda profile: False)
    command.deploy("one-machine", dry_run=True)
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"not in the cache yet: \d+ steps, about \d+ min on two idle cores", lines[0])
    assert lines[2].startswith(f"  building kubernetes {versions.KUBERNETES} (about 5 min), etcd ")
    assert "  creating the root file system of local nodes (about 2 min)" in lines
    assert lines[-2].startswith("would create the local nodes ")


def test_a_frozen_cache_serves_its_entries_unchanged(tmp_path: Path) -> None:
    entry = tmp_path / "programs" / "probe"
    with cache.creating(entry):
        entry.touch()
    os.utime(entry, (1, 1))
    with cache.frozen(), cache.creating(entry) as missing:
        assert not missing
        cache.mark_used(entry)
    assert entry.stat().st_mtime == 1


def test_a_dry_run_of_deploy_names_software_that_is_not_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def state(*args: object) -> None:
        with cache.creating(tmp_path / "official" / "kubernetes", "downloading kubernetes"):
            raise AssertionError("the entry would be created")

    monkeypatch.setenv("K8SDDS_STATE_DIR", str(tmp_path / "state"))
    for name, replacement in (
        ("machines_exist", lambda profile: True), ("create_machines", state), ("desired_state", state),
        ("Connections", lambda *_: contextlib.nullcontext()), ("survey", lambda *_: flow.MachineSurvey({}, notes=["a note"])),
    ):  # fmt: skip
        monkeypatch.setattr(flow, name, replacement)
    monkeypatch.setattr(flow.profiles, "targets", lambda profile: [])
    command.deploy("one-machine", dry_run=True)
    note, plan, then = capsys.readouterr().out.splitlines()
    assert note == "a note" and "once they and the software exist" in then
    assert plan == "not in the cache yet: downloading kubernetes (about 2 min)"
    command.deploy("one-machine", dry_run=True, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert shown == {"missing": ["downloading kubernetes"], "actions": None, "notes": ["a note"]}
    assert not (tmp_path / "official").exists()


def test_a_dry_run_of_clean_names_what_it_would_remove(
    k8sdds: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from k8sdds.testbeds.lab import records

    state = tmp_path / "state-None"
    state.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(state))
    records.create(records.LabRecord("old", "campaign", owner=(2**22 + 1, 1)))
    assert k8sdds("clean", "--dry-run").stdout == "would remove old\n"
    assert (state / "labs/old.json").exists()
    assert k8sdds("clean").stdout == "removed old\n"
    assert not (state / "labs/old.json").exists()
