"""The command `init profile` on real SSH servers."""

from __future__ import annotations

from pathlib import Path

from k8sdds.deploy import profiles
from tests.conftest import Command
from tests.deploy.conftest import Farm


def test_a_profile_is_written_from_the_machines(farm: Farm, k8sdds: Command, tmp_path: Path) -> None:
    farm.add("alpha", "beta")
    ssh_config = tmp_path / "ssh_config"
    ssh_config.write_text(f"UserKnownHostsFile {farm.known_hosts}\n")
    nodes = [f"--node=root@{server.address}:{server.port}" for server in farm.servers.values()]
    path = tmp_path / "lab.yaml"
    command = ("init", "profile", "lab", *nodes, "--key", str(farm.login_key), "-o", str(path))
    command += ("--ssh-config", str(ssh_config))
    ended = k8sdds(*command)
    assert ended.returncode == 0 and f"Next: k8sdds status {path}" in ended.stderr, ended.stderr
    profile = profiles.load(str(path))
    assert [node.name for node in profile.nodes] == ["alpha", "beta"]
    assert profile.control_plane.roles == ["control-plane", "worker"]
    assert profile.nodes[0].architecture is not None and profile.access.key == str(farm.login_key)
    # The profile is sufficient to reach the machines.
    ended = k8sdds("status", str(path))
    assert "cannot be reached" not in ended.stderr and "alpha" in ended.stdout

    # Without a machine, nothing is written or replaced.
    before = path.read_text()
    farm.servers["beta"].stop()
    ended = k8sdds(*command, "--force")
    assert ended.returncode == 3 and path.read_text() == before
    assert (
        f"{farm.servers['beta'].address}: cannot be reached" in ended.stderr and "--no-look" in ended.stderr
    )
    assert "alpha" not in ended.stderr and "Traceback" not in ended.stderr
    ended = k8sdds(*command, "--force", "--no-look")
    assert ended.returncode == 0 and profiles.load(str(path)).nodes[0].architecture is None


def test_unknown_host_keys_are_accepted_on_request(farm: Farm, k8sdds: Command, tmp_path: Path) -> None:
    (target,) = farm.add("alpha", known=False)
    ssh_config = tmp_path / "ssh_config"
    ssh_config.write_text(f"UserKnownHostsFile {farm.known_hosts}\n")
    node = f"root@{target.address}:{target.port}"
    command = ("init", "profile", "lab", "--node", node, "--key", str(farm.login_key), "-o", "-")
    command += ("--ssh-config", str(ssh_config))
    ended = k8sdds(*command)
    assert ended.returncode == 3 and "host key is not known" in ended.stderr and not ended.stdout
    assert "--accept-new-host-keys" in ended.stderr and not farm.known_hosts.exists()
    ended = k8sdds(*command, "--accept-new-host-keys")
    assert ended.returncode == 0 and profiles.parse(ended.stdout, "lab.yaml").control_plane.name == "alpha"
