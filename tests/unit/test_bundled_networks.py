"""Which networks the bundle of a profile must contain, and what a bundle lacks for a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from k8sdds import networks, versions
from k8sdds.bundle import Bundle, oci
from k8sdds.bundle.contents import HOST_ARCH, IMAGES
from k8sdds.campaign import experiments
from k8sdds.deploy import bundled_networks, network_install, profiles
from k8sdds.model.profile import Profile
from k8sdds.system.errors import InputError, PrerequisiteError
from tests import bundles

PROFILE = """name: lab
nodes: [{{name: one, roles: [control-plane]}}]
network: {network}
networks: {networks}
"""


def profile(network: str, others: str) -> Profile:
    return profiles.parse(PROFILE.format(network=network, networks=others), "lab.yaml")


def bundle(folder: Path, *images: str, program: str = "charon") -> Bundle:
    """Create a bundle with these images, which share a layer of 1 MB with a program."""
    (folder / "file").parent.mkdir(parents=True)
    (folder / "file").write_bytes(b"x" * 1_000_000)
    layout = oci.Layout(folder / "oci")
    shared = layout.layer({f"/usr/lib/{program}": folder / "file"})
    items = []
    for name in images:
        layers = [shared, layout.layer({"/name": name.encode()})]
        items.append(bundles.image(name, layout.image(name, HOST_ARCH, ["/x"], layers)))
    layout.finish()
    return bundles.write(folder, items, kubernetes=versions.KUBERNETES)


def test_the_bundle_of_the_study_requires_its_networks() -> None:
    required = bundled_networks.required(profiles.load("paper"))
    assert [network.name for network in required] == [
        "weavenet", "flannel-vxlan", "flannel-hostgw", "kube-router",
    ]  # fmt: skip
    # Every image is one that k8sdds can provide for a bundle.
    assert {image for network in required for image in network.images} <= {image.name for image in IMAGES}
    assert [network.mtu_bytes for network in required] == [1376, 1450, 1500, 1480]


def test_experiments_add_the_networks_that_can_be_installed() -> None:
    names = [network.name for network in bundled_networks.required(None, [experiments.load("quickstart")])]
    assert {"host", "flannel-vxlan", "flannel-hostgw", "kube-router", "weavenet"} <= set(names)
    assert set(names) <= set(networks.pod_networks()) and len(names) == len(set(names))
    assert bundled_networks.required(None) == []


def test_the_options_of_a_named_network_apply_to_a_switch() -> None:
    lab = profile("{name: flannel-vxlan, interface: eth1}", "[{name: kube-router, mtu: 1480}, host]")
    chosen = network_install.choose_network(lab, "kube-router")
    assert (chosen.mtu, chosen.interface) == (1480, "eth1")
    assert network_install.choose_network(lab, "kube-router", mtu=1400).mtu == 1400
    assert network_install.choose_network(lab, "flannel-hostgw").mtu is None
    weave = profile("{name: weavenet, engine: sleeve}", "[]")
    assert network_install.choose_network(weave, "weavenet").engine == "sleeve"
    assert network_install.choose_network(weave, "weavenet", engine="fastdp").engine is None
    with pytest.raises(InputError, match="no engine fastdp"):
        network_install.choose_network(weave, "flannel-vxlan", engine="fastdp")


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ("[{name: flannel-vxlan, mtu: 1400}]", "flannel-vxlan is named twice, with other options"),
        ("[host, host]", "host is named twice"),
        ("[kube-ruter]", "did you mean 'kube-router'"),
        ("[{name: host, interface: eth0}]", "applies to all networks"),
        ("[flannel-ipsec]", "requires password_file"),
    ],
)
def test_wrong_networks_of_a_profile_are_rejected(others: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        profile("flannel-vxlan", others)


@pytest.mark.parametrize("network", ["flannel-vxlan", "{name: flannel-vxlan, mtu: 1400}"])
def test_the_networks_of_a_profile_may_repeat_its_network(network: str) -> None:
    for others in ("[flannel-vxlan, kube-router]", f"[kube-router, {network}]"):
        assert profile(network, others) == profile(network, "[kube-router]")


def test_everything_that_is_missing_is_listed_and_the_rest_has_a_size(tmp_path: Path) -> None:
    lab = profile("flannel-vxlan", "[kube-router, weavenet]")
    required = bundled_networks.required(lab)
    partial = bundle(tmp_path / "bundle", versions.FLANNEL_IMAGE, versions.WEAVE_IMAGE)
    found = {entry.network: entry for entry in bundled_networks.contents(partial, required)}
    assert found["flannel-vxlan"].missing == ()
    assert found["flannel-vxlan"].size_bytes == found["weavenet"].size_bytes > 1000
    assert found["kube-router"].size_bytes == 0
    with pytest.raises(PrerequisiteError) as caught:
        bundled_networks.check(partial, required)
    lines = caught.value.message.splitlines()
    assert len(lines) == 2
    assert f"kube-router needs the image {versions.KUBE_ROUTER_IMAGE}" in lines[0]
    assert f"weavenet needs the image {versions.WEAVE_NPC_IMAGE}" in lines[1]
    bundled_networks.check(partial, required[:1])
    # Without a selection, all networks are listed.
    assert {entry.network for entry in bundled_networks.contents(partial)} == set(networks.pod_networks())


def test_a_layer_that_images_of_a_network_share_counts_once(tmp_path: Path) -> None:
    lab = bundled_networks.required(profile("weavenet", "[]"))
    (both,) = bundled_networks.contents(
        bundle(tmp_path / "two", versions.WEAVE_IMAGE, versions.WEAVE_NPC_IMAGE), lab
    )
    (one,) = bundled_networks.contents(bundle(tmp_path / "one", versions.WEAVE_IMAGE), lab)
    assert 0 < both.size_bytes - one.size_bytes < one.size_bytes


@pytest.mark.parametrize(("program", "missing"), [("charon", 0), ("other", 1)])
def test_a_program_that_an_image_lacks_is_missing(tmp_path: Path, program: str, missing: int) -> None:
    lab = profile("{name: flannel-ipsec, password_file: key}", "[]")
    created = bundle(tmp_path / "bundle", versions.FLANNEL_IMAGE, program=program)
    (entry,) = bundled_networks.contents(created, bundled_networks.required(lab))
    assert len(entry.missing) == missing
    assert all("needs charon" in reason for reason in entry.missing)
