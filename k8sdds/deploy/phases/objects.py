"""What phases that apply Kubernetes objects share."""

from __future__ import annotations

from collections.abc import Sequence

from k8sdds import versions
from k8sdds.deploy.actions import PRIVATE, Action, Private, Step
from k8sdds.deploy.desired_state import DesiredState
from k8sdds.kubernetes import apply


def changes(
    wanted: DesiredState,
    phase: str,
    title: str,
    objects: Sequence[apply.Object],
    secret: Sequence[str] = (),
    needs: tuple[Step, ...] = (),
    then: str = "",
) -> list[Action]:
    """Apply all of these stamped objects where one of them is missing or another; else nothing.

    Those named in `secret` (secret/NAMESPACE/NAME) travel as a private file.
    """
    there = wanted.cluster.objects
    if all(
        there.get(apply.identity(one)) == one["metadata"]["annotations"][versions.SHA256_ANNOTATION]
        for one in objects
    ):
        return []
    public = [one for one in objects if _secret_name(one) not in secret]
    script = apply.apply_script(public)
    private: tuple[Private, ...] = ()
    if secret:
        path = f"{PRIVATE}/objects.json"
        private = (Private(path, name=phase),)
        # After the rest, which has their namespace.
        script += f"{apply.APPLY} -f {path} >/dev/null\n"
    return [Action(wanted.head, phase, title, script + then, private=private, needs=needs, timeout_s=300)]


def _secret_name(one: apply.Object) -> str:
    meta = one["metadata"]
    return f"{one['kind'].lower()}/{meta.get('namespace', '')}/{meta['name']}"


def secret_objects(objects: Sequence[apply.Object], secret: Sequence[str]) -> bytes:
    """The content of the private file: those objects that are secret."""
    return apply.list_document([one for one in objects if _secret_name(one) in secret]).encode()
