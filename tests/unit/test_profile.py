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
        ("name: mine", "name: mine\ntuning: [fast]", "mine.yaml:2: tuning: expected"),
        ("name: pi1", "name: pi1, taints: [dedicated]", "mine.yaml:5: nodes[1].taints"),
        ("name: pi1", "name: pi1, taints: ['a=b:Never']", "nodes[1].taints"),
        ("name: pi1", "name: pi1, taints: ['$(x):NoSchedule']", "nodes[1].taints"),
        ("name: pi1", "name: pi1, taints: ['a:NoSchedule', 'a=b:NoSchedule']", "same key and effect"),
        ("nodes:", "registry: {mirrors: []}\nnodes:", "mine.yaml:3: registry.mirrors"),
        ("nodes:", "registry: {mirrors: [mirror.lab]}\nnodes:", "registry.mirrors"),
        ("nodes:", "registry: {mirrors: ['https://me:secret@mirror.lab']}\nnodes:", "registry.mirrors"),
        ("nodes:", "registry: {mirrors: ['http://mirror.lab'], login_file: f}\nnodes:", "not encrypted"),
        ("nodes:", "registry: {mirrors: ['https://a', 'https://a']}\nnodes:", "listed twice"),
        ("nodes:", "proxy: {no_proxy: [a]}\nnodes:", "mine.yaml:3: proxy: set http, https or both"),
        ("nodes:", "proxy: {http: 'http://me:secret@proxy'}\nnodes:", "proxy.http"),
        ("nodes:", "proxy: {https: 'http://me:secret@proxy'}\nnodes:", "proxy.https"),
        ("nodes:", "proxy: {http: 'http://proxy', no_proxy: ['a\"; x']}\nnodes:", "proxy.no_proxy"),
        ("nodes:", "kubernetes: {ip_families: [ipv6, ipv6]}\nnodes:", "listed twice"),
        ("nodes:", "kubernetes: {pod_cidr_ipv6: fd00:10:244::/64}\nnodes:", "/48 to /63"),
        ("nodes:", "kubernetes: {pod_cidr_ipv6: fd00:10::/32}\nnodes:", "/48 to /63"),
        ("nodes:", "kubernetes: {service_cidr_ipv6: fd00:10:96::/64}\nnodes:", "/108 to /120"),
        ("nodes:", "kubernetes: {service_cidr_ipv6: fd00:10:244::/112}\nnodes:", "overlap"),
    ],
)
def test_mistakes_are_reported_with_file_and_key(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parsed(GOOD.replace(old, new, 1))
    assert message in caught.value.message and caught.value.message.startswith("mine.yaml:")


SECRETS = {
    "password": (profiles.password, "network: {{name: flannel-ipsec, password_file: {}}}\n"),
    "login": (profiles.registry_login, "registry: {{mirrors: ['https://mirror.lab'], login_file: {}}}\n"),
}


@pytest.mark.parametrize(
    ("kind", "content", "mode", "message"),
    [
        ("password", "x" * 128, 0o644, "other users can read"),
        ("password", "x" * 95, 0o600, "at least 96 are required"),
        ("password", "x" * 95 + '"', 0o600, "contains quotation marks"),
        ("password", "", 0o600, "one line"),
        ("password", "x" * 96 + "\nmore", 0o600, "one line"),
        ("login", "user:xxxx", 0o644, "other users"),
        ("login", "xxxx", 0o600, "does not contain USER:PASSWORD"),
        ("login", "user:", 0o600, "does not contain USER:PASSWORD"),
        ("login", ":xxxx", 0o600, "does not contain USER:PASSWORD"),
        ("login", None, 0o600, "cannot read"),
        ("password", "x" * 96 + "\n", 0o600, ""),
        ("login", "user:xxxx\n", 0o600, ""),
    ],
)
def test_secrets_are_read_from_private_files_and_never_in_messages(
    tmp_path: Path, kind: str, content: str | None, mode: int, message: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
        file.chmod(mode)
    read, text = SECRETS[kind]
    profile = parsed(GOOD + text.format(file))
    if message:
        with pytest.raises(InputError) as caught:
            read(profile)
        assert message in str(caught.value) and "xxx" not in str(caught.value)
    else:
        assert content is not None and read(profile) == content.strip()
    assert not read(parsed(GOOD))


def test_missing_key_file_is_refused(tmp_path: Path) -> None:
    profile = parsed(GOOD.replace("~/.ssh/id", str(tmp_path / "nokey")))
    with pytest.raises(InputError, match="does not exist"):
        profiles.targets(profile)
