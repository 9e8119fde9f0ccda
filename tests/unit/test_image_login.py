"""Logins to the registry of the image, as docker, podman and skopeo write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from k8sdds import middleware, versions
from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.model.trial import Cell, Trial
from k8sdds.system.errors import InputError
from k8sdds.testbeds.cluster import image_login
from k8sdds.testbeds.cluster.image_login import LoginFile
from k8sdds.testbeds.cluster.testbed import ClusterTestbed
from k8sdds.testbeds.selection import SelectedTestbed

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
    logins = LoginFile.read(file).select([image])
    assert logins == {"auths": {key: LOGIN}}
    secret = image_login.secret(logins, {"a": "b"})
    assert secret["type"] == "kubernetes.io/dockerconfigjson" and secret["metadata"]["labels"] == {"a": "b"}
    assert json.loads(secret["stringData"][".dockerconfigjson"]) == logins


@pytest.mark.parametrize(
    "auths", [{}, {"registry.example": {}}, {"registry.example": "x"}, None, [], {"a": LOGIN}]
)
def test_a_file_without_the_login_is_refused(tmp_path: Path, auths: Any) -> None:
    with pytest.raises(InputError, match=r"no login to registry\.example, the registry of") as error:
        LoginFile.read(written(tmp_path, auths)).select(["registry.example/perftest"])
    assert "skopeo login --authfile FILE registry.example" in error.value.remedy


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="other users can read"):
        LoginFile.read(written(tmp_path, {}, 0o644))
    written(tmp_path, {}).write_text("user:password")
    with pytest.raises(InputError, match=r"--image-login: .*login\.json") as error:
        LoginFile.read(tmp_path / "login.json")
    assert "password" not in error.value.message
    with pytest.raises(InputError, match="cannot read"):
        LoginFile.read(tmp_path / "none")


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


class Api:
    """An API server whose user has no rights."""

    def is_allowed(self, *right: str, **where: str) -> bool:
        return False


def cluster(file: Path) -> ClusterTestbed:
    selected = SelectedTestbed("cluster", image="registry.example/perftest", image_login=str(file))
    return ClusterTestbed(cast(KubernetesClient, Api()), selected, "c")


def test_the_logins_to_all_registries_of_a_campaign_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(versions.CONNEXT_DISCOVERY_IMAGE_VARIABLE, "cloud.example/discovery")
    connext = middleware.find("connext")
    monkeypatch.setattr(connext, "image", lambda: "connext.example/perftest")
    cell = Cell(network="unknown", test="latency", payload_bytes=1024, middleware="connext")
    trials = [Trial(cell=cell, testbed="cluster", repetition=0, duration_s=1, warmup_s=0)]
    logins = {f"{name}.example": LOGIN for name in ("connext", "cloud", "registry")}
    file = written(tmp_path, {**logins, "other.example": LOGIN})
    testbed = cluster(file)
    assert testbed.logins(trials) == {"auths": logins}
    file.unlink()
    assert testbed.logins(()) == {"auths": {"registry.example": LOGIN}}, "the file is read once"
    with pytest.raises(
        InputError, match=r"no login to connext\.example or cloud\.example or registry\.example"
    ):
        cluster(written(tmp_path, {"other.example": LOGIN})).logins(trials)


def test_a_wrong_file_is_one_problem_among_others(tmp_path: Path) -> None:
    problems = cluster(written(tmp_path, {}))._login_problems(())
    assert [problem.input for problem in problems] == [False, True]
    assert "not allowed: create secrets" in problems[0].what and "no login to" in problems[1].what
