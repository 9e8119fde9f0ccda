"""Shipped profiles, and messages for mistakes in profiles."""

from pathlib import Path

import pytest

from k8sdds.deploy import profiles
from k8sdds.model.profile import Profile
from k8sdds.system.errors import InputError

GOOD = """\
name: mine
access: {user: pi, key: ~/.ssh/id}
nodes:
  - {name: master, roles: [control-plane]}
  - {name: pi1, address: 10.0.0.2, user: ubuntu, architecture: arm64}
"""


def parsed(text: str) -> Profile:
    return profiles.parse(text, "mine.yaml")


def test_node_overrides_the_access_of_the_profile() -> None:
    profile = parsed(GOOD)
    assert profile.access_of(profile.node("master")).user == "pi"
    pi1 = profile.access_of(profile.node("pi1"))
    assert (pi1.user, pi1.key, pi1.port) == ("ubuntu", "~/.ssh/id", None)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: mine", "name: Mine_", "mine.yaml:1: name"),
        ("architecture: arm64", "architecture: arm", "32-bit ARM"),
        ("name: pi1", "name: master", "two nodes have the name master"),
        ("roles: [control-plane]", "roles: [worker]", "role control-plane, not none"),
        ("address: 10.0.0.2", "address: -oProxyCommand=reboot", "mine.yaml:5: nodes[1].address"),
        ("user: pi,", "user: '-lroot',", "access.user"),
        ("access:", "acess:", "did you mean 'access'"),
        ("name: mine", "name: mine\nkubernetes: {version: latest}", "kubernetes.version"),
        ("name: mine", "name: mine\nkubernetes: {pod_cidr: 10.96.0.0/16}", "overlap"),
        ("name: mine", "name: mine\nkubernetes: {pod_cidr: 10.244.0.0/24}", "too small"),
        ("name: mine", "name: mine\nkubernetes: {pod_cidr: 128.0.0.0/1}", "too large"),
        (
            "name: mine",
            "name: mine\nnetwork: flannel",
            "mine.yaml:2: network: unknown network 'flannel' (did you mean 'flannel-",
        ),
        ("name: mine", "name: mine\nnetwork: flannel-ipsec", "requires password_file"),
        ("name: mine", "name: mine\nnetwork: {name: host, password_file: f}", "does not use password_file"),
        ("name: mine", "name: mine\nnetwork: {name: host, interface: 'eth0; reboot'}", "network.interface"),
        (
            "name: mine",
            "name: mine\nsoftware: {source: packages, bundle: x}",
            "bundle is set, but source is packages",
        ),
        ("name: mine", "name: mine\ntuning: [fast]", "mine.yaml:2: tuning: Input should be"),
    ],
)
def test_mistakes_are_reported_with_file_and_key(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parsed(GOOD.replace(old, new, 1))
    assert message in caught.value.message and caught.value.message.startswith("mine.yaml:")


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("x" * 128, 0o644, "other users can read"),
        ("x" * 95, 0o600, "fewer than 96"),
        ("", 0o600, "one line"),
        ("x" * 96 + "\nmore", 0o600, "one line"),
    ],
)
def test_messages_about_secrets_do_not_contain_them(
    tmp_path: Path, text: str, mode: int, message: str
) -> None:
    file = tmp_path / "psk"
    file.write_text(text)
    file.chmod(mode)
    network = f"network: {{name: flannel-ipsec, password_file: {file}}}\n"
    with pytest.raises(InputError) as caught:
        profiles.password(parsed(GOOD + network))
    assert message in str(caught.value) and "xxx" not in str(caught.value)


def test_password_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "psk"
    file.touch(mode=0o600)
    file.write_text("s" * 96 + "\n")
    assert (
        profiles.password(parsed(GOOD + f"network: {{name: flannel-ipsec, password_file: {file}}}\n"))
        == "s" * 96
    )
    assert profiles.password(parsed(GOOD)) is None


def test_missing_key_file_is_refused(tmp_path: Path) -> None:
    profile = parsed(GOOD.replace("~/.ssh/id", str(tmp_path / "nokey")))
    with pytest.raises(InputError, match="does not exist"):
        profiles.targets(profile)
