"""--dry-run of commands that need the native programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Command


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("bundle", "create", "usb/bundle", "--suite", "none"), "would write Kubernetes"),
        (("images", "build", "perftest", "--output", "a.tar"), "would build k8sdds.local/perftest:"),
        (("images", "push", "registry.example.org/robots"), " to registry.example.org/robots"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_dry_run_writes_no_file(
    k8sdds: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], message: str
) -> None:
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    done = k8sdds(*args, "--dry-run")
    assert (done.returncode, done.stderr) == (0, "")
    assert message in done.stdout
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".lock"] == []
    assert not (tmp_path / "usb").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("bundle", "create", "occupied"), "already exists"),
        (("bundle", "create", "new", "--suite", "A b"), "'A b' is not the name of a suite"),
        (("images", "build", "no-such-image"), "there is no image"),
        (("images", "build", "--arch", "vax"), "cannot be created for 'vax'"),
        (("images", "push", "https://registry.example.org"), "is a URL"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_dry_run_finds_the_same_mistakes(
    k8sdds: Command, tmp_path: Path, args: tuple[str, ...], message: str
) -> None:
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "file").touch()
    done = k8sdds(*args, "--dry-run")
    assert done.returncode == 2
    assert message in done.stderr
