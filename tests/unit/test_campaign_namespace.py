"""A campaign's namespace is deleted again if its rights there cannot be granted."""

from __future__ import annotations

from typing import Any, cast

import pytest

from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.system.errors import PrerequisiteError
from k8sdds.testbeds.cluster import image_login, namespace, permissions


class Api:
    """An API server that gives these answers in turn, the last one again and again, to the question of a right."""

    def __init__(self, *answers: bool | type[BaseException]) -> None:
        self.answers = list(answers)
        self.requests: list[str] = []

    def is_allowed(self, *right: str, **where: str) -> bool:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, bool):
            return answer
        raise answer

    def find(self, path: str) -> None:
        return None

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(f"create {body['kind']}")
        return {"status": {"userInfo": {"username": "robot"}}}

    def delete(self, path: str) -> None:
        self.requests.append(f"delete {path}")


def create(api: Api) -> None:
    """Create a namespace, and check that it is reported as created."""
    created: list[str] = []
    try:
        namespace.create(cast(KubernetesClient, api), "test", None, False, created.append)
    finally:
        assert created == [f"k8sdds-{namespace.identifier('test')}"]


@pytest.mark.parametrize("answers", [(KeyboardInterrupt,), (False, KeyboardInterrupt)])
def test_an_interruption_while_rights_are_granted_deletes_the_namespace(
    answers: tuple[bool | type[BaseException], ...],
) -> None:
    api = Api(*answers)
    with pytest.raises(KeyboardInterrupt):
        create(api)
    assert api.requests[0] == "create Namespace"
    assert api.requests[-1] == f"delete /api/v1/namespaces/k8sdds-{namespace.identifier('test')}"


def test_a_binding_without_effect_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "EFFECTIVE_WITHIN_S", 0)
    api = Api(False)
    with pytest.raises(PrerequisiteError, match=r"k8sdds-campaign, bound .* does not allow: create pods"):
        create(api)
    assert api.requests[-1].startswith("delete ")


def test_logins_are_a_secret_of_both_namespaces_and_of_all_their_pods() -> None:
    api, logins = Api(True), {"auths": {"registry.example": {"auth": "eDp5"}}}
    first = namespace.create(cast(KubernetesClient, api), "test", None, False, logins=logins)
    second = namespace.create_for_node_probes(first)
    assert api.requests == ["create Namespace", "create Secret"] * 2
    assert second.name == f"{first.name}-nodes" and "eDp5" not in repr(first)
    spec: dict[str, Any] = {}
    second.pull_with_login(spec)
    assert spec == {"imagePullSecrets": [{"name": image_login.NAME}]}
    namespace.create(cast(KubernetesClient, api), "test", None, False).pull_with_login(without := {})
    assert without == {}


def test_a_binding_may_have_its_effect_later() -> None:
    api = Api(*[False] * 2 * len(permissions.IN_NAMESPACE), True)
    create(api)
    assert api.requests == ["create Namespace", "create SelfSubjectReview", "create RoleBinding"]
