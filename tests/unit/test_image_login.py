"""Logins to the registry of the image, as docker, podman and skopeo write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from k8sdds.system.errors import InputError
from k8sdds.testbeds.cluster import image_login

LOGIN = {"auth": "eDp5"}


def written(folder: Path, auths: Any, mode: int = 0o600) -> Path:
    file = folder / "login.json"
    file.touch()
    file.chmod(mode)
    file.write_text(json.dumps({"auths": auths, "credsStore": "desktop"}))
    return file


@pytest.mark.parametrize(
    ("image", "key"),
    [
        ("registry.example/lab/perftest:1", "registry.example"),
        ("registry.example/lab/perftest:1", "registry.example/lab"),
        ("registry.example/lab/perftest:1", "https://registry.example/v1/"),
        ("127.0.0.1:5000/perftest@sha256:00", "127.0.0.1:5000"),
        ("localhost/perftest", "localhost"),
        ("lab/perftest", "https://index.docker.io/v1/"),
        ("docker.io/lab/perftest", "docker.io"),
    ],
)
def test_only_the_logins_to_the_registry_of_the_image_are_used(tmp_path: Path, image: str, key: str) -> None:
    file = written(tmp_path, {key: LOGIN, "other.example": LOGIN, "registry.example.org": LOGIN})
    logins = image_login.read(file, image)
    assert logins == {"auths": {key: LOGIN}}
    secret = image_login.secret(logins, {"a": "b"})
    assert secret["type"] == "kubernetes.io/dockerconfigjson" and secret["metadata"]["labels"] == {"a": "b"}
    assert json.loads(secret["stringData"][".dockerconfigjson"]) == logins


@pytest.mark.parametrize(
    "auths", [{}, {"registry.example": {}}, {"registry.example": "x"}, None, [], {"a": LOGIN}]
)
def test_a_file_without_the_login_is_refused(tmp_path: Path, auths: Any) -> None:
    with pytest.raises(InputError, match=r"no login to registry\.example, the registry of") as error:
        image_login.read(written(tmp_path, auths), "registry.example/perftest")
    assert "skopeo login --authfile FILE registry.example" in error.value.remedy


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="other users can read"):
        image_login.read(written(tmp_path, {}, 0o644), "a.example/b")
    written(tmp_path, {}).write_text("user:password")
    with pytest.raises(InputError, match=r"--image-login: .*login\.json") as error:
        image_login.read(tmp_path / "login.json", "a.example/b")
    assert "password" not in error.value.message
    with pytest.raises(InputError, match="cannot read"):
        image_login.read(tmp_path / "none", "a.example/b")


@pytest.mark.parametrize(
    ("namespace", "missing", "expected"),
    [(None, [], ""), (None, ["create secrets"], "not allowed: create secrets"), ("lab", [], "namespace lab")],
)
def test_a_secret_needs_a_right_and_a_namespace_of_its_own(
    namespace: str | None, missing: list[str], expected: str
) -> None:
    found = image_login.problems(namespace, missing)
    assert bool(found) == bool(expected)
    assert all(expected in problem.what for problem in found)
