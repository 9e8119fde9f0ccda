"""Sources of programs that are cloned: pinned commits, folders and archives of the user, and modules they require."""

from __future__ import annotations

import gzip
import io
import random
import subprocess
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from k8sdds import versions
from k8sdds.bundle import contents, golang, official, repositories
from k8sdds.bundle.contents import PROGRAMS, Program, Repository
from k8sdds.bundle.parts import cloned_programs, selected_images, with_available_clones, without_clones
from k8sdds.system.errors import InputError, PrerequisiteError
from tests.unit.fuzzing import damage

MODULE = "example.org/router/v2"
DEPENDENCY = "example.org/links"
FILES = {
    "go.mod": f"module {MODULE}\n\ngo 1.26\n\nrequire {DEPENDENCY} v1.0.0\n",
    "cmd/router/main.go": "package main\n",
}
KUBE_ROUTER = PROGRAMS["kube-router"]
CLONED = [versions.KUBE_ROUTER_IMAGE, versions.WEAVE_IMAGE, versions.WEAVE_NPC_IMAGE]


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def packed(path: Path, files: dict[str, str], *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
        for member in members:
            archive.addfile(member)
    return path


def git(folder: Path, *argv: str) -> str:
    person = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", "-C", str(folder), *person, *argv], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Return kube-router with a repository on this machine, whose tag `v1` is followed by another commit."""
    monkeypatch.setenv(official.VARIABLE, official.AUTO)
    monkeypatch.setenv("K8SDDS_CACHE_DIR", str(tmp_path / "cache"))
    folder = write(tmp_path / "upstream", FILES)
    (folder / "link").symlink_to("a file that the repository does not have")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    git(folder, "tag", "-a", "v1", "-m", "v1")
    commit = git(folder, "rev-parse", "HEAD")
    write(folder, {"later.go": "package router\n"})
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "two")
    return replace(KUBE_ROUTER, repository=Repository(f"file://{folder}", "v1", commit, MODULE))


def content(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def checked_out(program: Program, **sources: Path) -> dict[str, str]:
    with repositories.checked_out(program, sources, lambda _: None) as folder:
        return content(folder)


def test_the_pinned_tag_is_cloned(program: Program) -> None:
    assert checked_out(program) == FILES


def test_the_repository_that_git_names_to_a_hook_is_not_changed(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(write(tmp_path / "own", {"file": "text\n"}), "init", "--quiet")
    before = sorted((tmp_path / "own/.git").rglob("*"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "own/.git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(tmp_path / "own"))
    assert checked_out(program) == FILES
    assert sorted((tmp_path / "own/.git").rglob("*")) == before
    assert [path.name for path in (tmp_path / "own").iterdir() if path.is_file()] == ["file"]


def test_a_tag_that_refers_to_another_commit_is_rejected(program: Program) -> None:
    assert program.repository is not None
    moved = replace(program, repository=replace(program.repository, commit="0" * 40))
    with pytest.raises(
        PrerequisiteError, match=rf"refers to the commit {program.repository.commit}, not to 0"
    ):
        checked_out(moved)


def test_a_repository_that_cannot_be_reached_is_reported_with_the_alternative(program: Program) -> None:
    assert program.repository is not None
    gone = replace(program, repository=replace(program.repository, url="file:///nowhere/at-all"))
    with pytest.raises(PrerequisiteError, match="cannot clone file:///nowhere/at-all") as caught:
        checked_out(gone)
    assert "--source kube-router=FOLDER" in caught.value.remedy


def test_nothing_is_cloned_if_only_go_modules_may_be_used(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(official.VARIABLE, official.MODULES)
    with pytest.raises(PrerequisiteError, match="prevents cloning"):
        checked_out(program)


@pytest.mark.parametrize("top", ["", "router-2.0/"])
def test_a_folder_or_an_archive_of_the_user_replaces_the_clone(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, top: str
) -> None:
    monkeypatch.setenv(official.VARIABLE, official.MODULES)
    files = {f"{top}{name}": text for name, text in FILES.items()}
    link = tarfile.TarInfo(f"{top}link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    archive = packed(tmp_path / "router.tar.gz", files, link)
    assert checked_out(program, **{"kube-router": archive}) == FILES
    folder = write(tmp_path / "mine", files)
    (folder / f"{top}link").symlink_to("/etc/passwd")
    write(folder / top, {".git/config": "[core]\n"})
    assert checked_out(program, **{"kube-router": folder}) == FILES


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"README.md": "text"}, r"contains no go\.mod"),
        ({"a/go.mod": f"module {MODULE}\n", "b/file": ""}, r"contains no go\.mod"),
        ({"go.mod": "module example.org/other\n"}, f"contains example.org/other, not {MODULE}"),
        ({"go.mod": "text\n"}, "contains no module"),
        ({"../go.mod": f"module {MODULE}\n"}, "is not an archive: unexpected entry"),
    ],
)
def test_other_archives_are_rejected(
    program: Program, tmp_path: Path, files: dict[str, str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        checked_out(program, **{"kube-router": packed(tmp_path / "a.tar.gz", files)})
    assert not (tmp_path.parent / "go.mod").exists()


def test_a_file_that_is_no_archive_is_rejected(program: Program, tmp_path: Path) -> None:
    (tmp_path / "a.tar.gz").write_bytes(b"text" * 1000)
    with pytest.raises(InputError, match="is not an archive"):
        checked_out(program, **{"kube-router": tmp_path / "a.tar.gz"})


def test_modules_are_replaced_by_what_the_user_provides(program: Program, tmp_path: Path) -> None:
    links = write(tmp_path / "links", {"go.mod": f"module {DEPENDENCY}\n", "links.go": "package links\n"})
    with repositories.checked_out(program, {DEPENDENCY: links}, lambda _: None) as folder:
        replaced = repositories.replacements(program, folder, {DEPENDENCY: links})
        assert set(replaced) == {DEPENDENCY}
        assert content(replaced[DEPENDENCY])["links.go"] == "package links\n"
        assert replaced[DEPENDENCY].parent == folder.parent


def test_a_module_that_the_program_does_not_require_is_rejected(program: Program, tmp_path: Path) -> None:
    """Else a bundle would state that it was built from it."""
    other = write(tmp_path / "other", {"go.mod": "module example.org/other\n"})
    sources = {"example.org/other": other}
    with (
        repositories.checked_out(program, sources, lambda _: None) as folder,
        pytest.raises(InputError, match=r"--source example\.org/other: kube-router does not require"),
    ):
        repositories.replacements(program, folder, sources)


def test_a_module_can_be_replaced_in_one_of_several_programs(program: Program, tmp_path: Path) -> None:
    links = write(tmp_path / "links", {"go.mod": f"module {DEPENDENCY}\n"})
    sources = repositories.parse([f"kube-router:{DEPENDENCY}={links}"])
    assert f" {DEPENDENCY}=links#sha256=" in repositories.origin(program, sources)
    assert DEPENDENCY not in repositories.origin(PROGRAMS["weaver"], sources)
    with repositories.checked_out(program, sources, lambda _: None) as folder:
        assert set(repositories.replacements(program, folder, sources)) == {DEPENDENCY}
    # It replaces what is given for all programs, in any order.
    others = write(tmp_path / "others", {"go.mod": f"module {DEPENDENCY}\n"})
    sources |= repositories.parse([f"{DEPENDENCY}={others}"])
    assert f" {DEPENDENCY}=links#sha256=" in repositories.origin(program, sources)
    assert f" {DEPENDENCY}=others#sha256=" in repositories.origin(PROGRAMS["weaver"], sources)


def test_a_clone_is_used_again(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several programs of a repository share it."""
    checked_out(program)
    monkeypatch.setattr(repositories, "_clone", None)
    assert checked_out(program) == FILES


def test_a_script_of_a_repository_is_copied(program: Program, tmp_path: Path) -> None:
    script = replace(program, name="script", package="start.sh", copied=True, source="kube-router")
    mine = write(tmp_path / "mine", {**FILES, "start.sh": "#!/bin/sh\n"})
    built = golang.build(script, "amd64", lambda _: None, sources={"kube-router": mine})
    assert built.read_text() == "#!/bin/sh\n"
    missing = replace(script, package="stop.sh")
    with pytest.raises(PrerequisiteError, match=r"the sources of kube-router contain no stop\.sh"):
        golang.build(missing, "amd64", lambda _: None, sources={"kube-router": mine})


def test_the_origin_changes_with_the_content(program: Program, tmp_path: Path) -> None:
    assert repositories.origin(program, {}).startswith("file:///")
    folder = write(tmp_path / "mine", FILES)
    first = repositories.origin(program, {"kube-router": folder})
    assert first.startswith("mine#sha256=") and first == repositories.origin(program, {"kube-router": folder})
    assert golang._built(program, "amd64", sources={"kube-router": folder}).name.startswith(
        "kube-router-amd64-"
    )
    write(folder, {"cmd/router/main.go": "package main // changed\n"})
    assert repositories.origin(program, {"kube-router": folder}) != first
    links = write(tmp_path / "links", {"go.mod": f"module {DEPENDENCY}\n"})
    assert f" {DEPENDENCY}=links#sha256=" in repositories.origin(program, {DEPENDENCY: links})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["kube-router"], "not valid"),
        (["=/tmp"], "not valid"),
        (["kube-router:=/tmp"], "not valid"),
        (["kube-ruoter=/tmp"], "did you mean 'kube-router'"),
        (["kube-router=/nowhere"], "/nowhere does not exist"),
        (["kube-router=/tmp", "kube-router=/"], "given twice"),
        (["weave:example.org/links=/tmp"], "did you mean 'weavenet'"),
    ],
)
def test_wrong_sources_are_rejected(values: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        repositories.parse(values)


def test_sources_are_programs_or_modules(tmp_path: Path) -> None:
    values = [f"kube-router={tmp_path}", f"{DEPENDENCY}={tmp_path}"]
    assert repositories.parse(values) == {"kube-router": tmp_path, DEPENDENCY: tmp_path}


def test_only_required_images_are_built_from_clones() -> None:
    every = selected_images(only_k8sdds=False)
    cloned = [image.name for image in every if cloned_programs(image)]
    assert cloned == CLONED
    assert [image for image in every if image.name not in cloned] == without_clones(every)
    assert without_clones(every, cloned) == every


@pytest.fixture
def built() -> Callable[..., list[str]]:
    """Return a function that builds images of a bundle while no repository can be cloned."""

    def fail(program: Program) -> None:
        raise PrerequisiteError("cannot clone it", "provide it")

    notes: list[str] = []

    def images(required: tuple[str, ...] = (), **sources: Path) -> list[str]:
        images = selected_images(only_k8sdds=False)
        selected = with_available_clones(images, fail, notes.append, required, sources)
        return [image.name for image in selected] + notes

    return images


def test_an_image_that_cannot_be_built_is_left_out_unless_it_is_required(
    built: Callable[..., list[str]], tmp_path: Path
) -> None:
    shown = built()
    names, notes = shown[: -len(CLONED)], shown[-len(CLONED) :]
    assert names == [image.name for image in contents.IMAGES if image.name not in CLONED]
    assert notes == [f"without {name}: cannot clone it; provide it" for name in CLONED]
    with pytest.raises(PrerequisiteError):
        built((versions.KUBE_ROUTER_IMAGE,))
    for name in ("kube-router", "weavenet"):
        with pytest.raises(PrerequisiteError):
            built(**{name: tmp_path})


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.long)])
def test_damaged_archives_cause_no_other_error(program: Program, tmp_path: Path, count: int) -> None:
    archive, chance = packed(tmp_path / "router.tar.gz", FILES), random.Random(1)
    seeds = [archive.read_bytes(), gzip.decompress(archive.read_bytes())]
    rejected = 0
    for _ in range(count):
        archive.write_bytes(damage.bytes_of(chance.choice(seeds), chance))
        try:
            checked_out(program, **{"kube-router": archive})
        except (InputError, UnicodeDecodeError) as error:
            # The second is an error of this test, which reads every file as text.
            rejected += isinstance(error, InputError)
    assert rejected > count / 4
