"""Test that errors in kubeconfigs are reported as input errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from k8sdds.kubernetes.client import KubernetesClient
from k8sdds.system.errors import InputError

GOOD = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "secret-token"}}],
    "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "a",
}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty"),
        ("hello: [", "cannot be used"),
        ("[]", "is not a kubeconfig"),
        ("just words", "is not a kubeconfig"),
        (b"\xa0\xff", "cannot be used"),
        (yaml.safe_dump({**GOOD, "users": []}), "refers to user 'u', which is not defined"),
        (yaml.safe_dump({**GOOD, "users": None}), "refers to user 'u', which is not defined"),
        (yaml.safe_dump({**GOOD, "clusters": []}), "cannot be used"),
        (yaml.safe_dump({key: one for key, one in GOOD.items() if key != "current-context"}), "current-context"),
        (yaml.safe_dump({**GOOD, "current-context": "b"}), "b"),
    ],
)  # fmt: skip
def test_invalid_kubeconfigs(text: str | bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=message) as raised:
        KubernetesClient.from_kubeconfig(file, None)
    assert str(file) in str(raised.value) and "secret-token" not in str(raised.value)


def test_missing_files_and_contexts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"kubeconfig {tmp_path}/none does not exist"):
        KubernetesClient.from_kubeconfig(tmp_path / "none", None)
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(GOOD))
    with pytest.raises(InputError, match=r"has no context 'b' \(it has: a\)"):
        KubernetesClient.from_kubeconfig(file, "b")
    client = KubernetesClient.from_kubeconfig(file, "a")
    assert client.server == "https://127.0.0.1:1"
    assert client.kubectl == f"kubectl --kubeconfig {file} --context a"


def test_several_files_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {**GOOD, "clusters": [{"name": "d", "cluster": {"server": "https://127.0.0.1:2"}}],
             "contexts": [{"name": "b", "context": {"cluster": "d", "user": "u"}}]}  # fmt: skip
    for name, data in (("one", GOOD), ("two", other)):
        (tmp_path / name).write_text(yaml.safe_dump(data))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/none:{tmp_path}/one:{tmp_path}/two")
    assert KubernetesClient.from_kubeconfig(None, None).server == "https://127.0.0.1:1"
    assert KubernetesClient.from_kubeconfig(None, "b").server == "https://127.0.0.1:2"
