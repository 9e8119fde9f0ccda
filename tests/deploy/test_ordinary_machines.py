"""Ordinary machines: local nodes that the profile names by address, port, user and key, as any others.

They stay when the cluster goes, so what was there before can be compared with what is there after.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from k8sdds import nodes
from tests.clusters import run

pytestmark = [pytest.mark.skipif(os.geteuid() != 0, reason="local nodes need root"), pytest.mark.long]

NAME = "ordinary"
DISK_MIB = 6144
"""Of their own: on this machine's disk, the kubelet would find too large a part of it used."""
TIMEOUT_S = 900

# Everything that a deploy could have changed on a machine, a line each. Logs, caches, the lock of iptables and
# what packages, systemd and logins note for themselves are not what anybody wants put back.
LOOK = r"""
export LC_ALL=C
find / -xdev \( -path /var/log -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /tmp \
  -o -path /var/lib/systemd -o -path /etc/ld.so.cache -o -path /root/.local -o -path /home \) -prune -o \
  -printf '%y %m %u %g %p %l\n' | sort
find / -xdev \( -path /var -o -path /usr/share -o -path /etc/ld.so.cache -o -path /tmp -o -path /home \) -prune -o \
  -type f -print0 | sort -z | xargs -0 sha256sum
for folder in /var/lib/kubelet /var/lib/etcd; do find $folder -mindepth 1; done
find /run -mindepth 1 -maxdepth 1 ! -name 'systemd*' ! -name xtables.lock ! -name motd.dynamic -printf 'run %P\n' | sort
cut -d ' ' -f 5 /proc/self/mountinfo | grep -v '^/run/user' | sort
ps -e -o comm= | grep -vE '^(sshd|sh|ps|sort|grep|sudo|kworker.*)$' | sort | uniq -c
systemctl list-unit-files --no-legend --no-pager | awk '{ print $1, $2 }' | sort
systemctl list-units --all --no-legend --no-pager --plain --type service,socket,timer,path,mount |
  awk '$3 == "active" || $3 == "failed" { print $1, $3 }' | grep -vE '^(ssh@|user@|session-|user-runtime)' | sort
ip -o link | sed 's/ qlen.*//'; ip -o -4 addr; ip route show table all | grep -v ^fe80; ip rule
nft list ruleset; ipset list -n; ip -o xfrm state; ip -o xfrm policy
sysctl -a 2>/dev/null | grep -E '^net\.(core|ipv4|bridge|netfilter)\.|^vm\.(over|panic)|^kernel\.(panic|keys)' |
  grep -vE 'nf_conntrack_count|nf_conntrack_buckets|tcp_mem|udp_mem|random'
dpkg-query -W -f '${Package} ${Status} ${Version}\n' | grep -v ' not-installed ' | sort
command -v ctr >/dev/null && ctr -n k8s.io images ls -q && ctr -n k8s.io containers ls -q
:
"""


@dataclass
class Site:
    """Two machines, and the profile that names them."""

    state: Path
    profile: Path

    def k8sdds(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command that must succeed."""
        done = run(self.state, *words, timeout_s=TIMEOUT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def look(self) -> dict[str, list[str]]:
        """What there is on the machines."""
        found = {}
        for name in ("head", "work"):
            said = nodes.run(NAME, name, ["sh"], stdin=LOOK, timeout_s=120)
            found[name] = said.splitlines()
        return found


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    monkeypatch.setenv("K8SDDS_STATE_DIR", str(state))
    try:
        made = nodes.up(NAME, [nodes.NodeSpec(name, disk_mib=DISK_MIB) for name in ("head", "work")])
        # Machines of a lab behind a jump host: ssh_config says how one gets there.
        config = tmp_path / "ssh_config"
        proxy = shlex.join([*made[0].proxy_command[:-2], "%h", "%p"])
        config.write_text(f"Host 10.88.0.*\n  ProxyCommand {proxy}\n")
        profile = tmp_path / "ordinary.yaml"
        listed = "".join(
            f"- {{name: {one.name}, address: {one.address}, port: {one.port}, roles: {roles}}}\n"
            for one, roles in zip(made, ("[control-plane, worker]", "[worker]"), strict=True)
        )
        profile.write_text(
            f"name: {NAME}\naccess:\n  user: {made[0].user}\n  key: {made[0].key_file}\n"
            f"  known_hosts: {made[0].known_hosts_file}\n  ssh_config: {config}\nnodes:\n{listed}"
            "metrics_server: null\ntuning: [nic-optimizations]\n"
        )
        yield Site(state, profile)
    finally:
        nodes.down(NAME)


def same(after: dict[str, list[str]], before: dict[str, list[str]]) -> None:
    for name, lines in before.items():
        gone, new = sorted(set(lines) - set(after[name])), sorted(set(after[name]) - set(lines))
        assert not gone and not new, "\n".join([f"{name}: what is gone, and what is new:", *gone, "", *new])


def test_machines_are_as_they_were_before(site: Site) -> None:
    with site.profile.open("a") as file:
        file.write("software: bundle\n")
    profile = str(site.profile)
    before = site.look()
    site.k8sdds("deploy", profile, "--yes")
    assert site.k8sdds("deploy", profile, "--yes").stdout == "no changes\n"
    assert site.look() != before
    # Behind a jump host: said how other programs get there.
    shown = site.k8sdds("kubeconfig", profile)
    assert "server: https://10.88.0.11:6443" in shown.stdout
    assert "ssh -N -L 6443:10.88.0.11:6443" in shown.stderr
    assert Path(site.k8sdds("kubeconfig", profile, "--path").stdout.strip()).read_text() == shown.stdout
    assert json.loads(site.k8sdds("status", profile, "--json").stdout)["problems"] == []
    one_is_down(site)
    # Its network changes, too: whatever the last one was, nothing of it stays.
    site.k8sdds("network", "switch", profile, "host")
    assert site.k8sdds("destroy", profile, "--yes").stdout.splitlines()[-1] == "removed"
    same(site.look(), before)
    # What was done stays on record here, and there is nothing to destroy any more.
    logs = site.state / "clusters" / NAME / "logs"
    assert sorted(path.name for path in logs.iterdir()) == ["head.log", "work.log"]
    assert site.k8sdds("destroy", profile, "--yes").stdout == "Nothing to destroy.\n"


def one_is_down(site: Site) -> None:
    """What commands say while a worker cannot be reached: each names it, and what can go on without it does."""
    profile = str(site.profile)
    nodes.cut(NAME, "work")
    try:
        for words in (("deploy", profile, "--yes"), ("network", "switch", profile, "host"), ("destroy", profile, "--yes")):
            done = run(site.state, *words, timeout_s=TIMEOUT_S)
            assert done.returncode == 3, done.stdout + done.stderr
            assert "work: cannot be reached" in done.stderr and "→" in done.stderr, done.stderr
        done = site.k8sdds("deploy", profile, "--yes", "--limit", "head")
        assert "left out because of --limit: work: cannot be reached" in done.stderr
        done = run(site.state, "deploy", profile, "--yes", "--limit", "work")
        assert done.returncode == 3 and "work: cannot be reached" in done.stderr
        archive = site.profile.with_name("logs.tar.gz")
        done = site.k8sdds("logs", profile, "--output", str(archive))
        assert "left out: work: cannot be reached" in done.stderr
        with tarfile.open(archive) as opened:
            names = opened.getnames()
        assert {"logs/head/kubelet.txt", "logs/work/unreached.txt", "logs/deploy/work.log"} <= set(names)
    finally:
        nodes.cut(NAME, "work", False)
    site.k8sdds("deploy", profile, "--yes")
    assert site.k8sdds("deploy", profile, "--yes").stdout == "no changes\n"


def test_with_purge_packages_go_as_well(site: Site, tmp_path: Path) -> None:
    """Machines without containerd, which get it from a bundle's packages."""
    bundle = tmp_path / "bundle"
    site.k8sdds("bundle", "create", str(bundle), "--suite", "bookworm")
    with site.profile.open("a") as file:
        file.write(f"software: {{source: bundle, bundle: {bundle}}}\n")
    profile = str(site.profile)
    for name in ("head", "work"):
        script = "systemctl stop containerd\nexport DEBIAN_FRONTEND=noninteractive\n"
        script += "apt-get purge -q=2 -y containerd runc conntrack socat ebtables >/dev/null\n"
        nodes.run(NAME, name, ["sh", "-e"], stdin=script, timeout_s=120)
    before = site.look()
    site.k8sdds("deploy", profile, "--yes")
    assert site.look() != before
    site.k8sdds("destroy", profile, "--yes", "--purge")
    same(site.look(), before)
    assert not (site.state / "clusters").exists() or not list((site.state / "clusters").iterdir())

