"""Run the script of the smoke test for 50 nodes, with a kubectl that records what it is asked."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from k8sdds.deploy import limits, smoke_test
from k8sdds.model.ip_families import IpFamily

NODES = [f"n{number:02}" for number in range(50)]
# Addresses end with the number of their node: those of the first interface are 10.0.0.*, those of net1 10.9.0.*. The pods
# of the file `broken` reach no other, those of `without` have no address. Multicast on the interfaces of `deaf` reaches no
# other node.
KUBECTL = r"""#!/bin/sh
cd @FOLDER@
case "$*" in
*" get pods "*jsonpath*)
  for number in $(seq 0 49); do
    name=$(printf 'smoke-n%02d' $number)
    grep -qx $name without && echo "$name " || echo "$name 10.0.0.$number"
  done ;;
*" exec "*)
  mkdir running/$$
  ls running | wc -l >>counts
  number=${4#smoke-n}
  case "$*" in
  *"ip -4"*) grep -qx "$4" without && code=1 || echo "2: net1    inet 10.9.0.${number#0}/24 brd 10.9.0.255 scope global net1" ;;
  *" --interface net1"*) grep -qx net1 deaf || echo '{"10.9.0.1:7000": 5}' ;;
  *" --no-loop "*) echo '{"10.0.0.1:7000": 5}' ;;
  *) echo "$4 $8" >>asked; echo "of $4"; ! grep -qx "$4" broken || code=1 ;;
  esac
  rmdir running/$$
  exit ${code:-0} ;;
esac
"""


def run(
    folder: Path,
    network: str,
    *broken: str,
    without: Sequence[str] = (),
    second: str | None = None,
    deaf: str = "",
) -> subprocess.CompletedProcess[str]:
    for name in ("running", "bin"):
        (folder / name).mkdir()
    for name, nodes in (("broken", broken), ("without", without)):
        (folder / name).write_text("".join(f"smoke-{node}\n" for node in nodes))
    (folder / "deaf").write_text(f"{deaf}\n")
    program = folder / "bin" / "kubectl"
    program.write_text(KUBECTL.replace("@FOLDER@", str(folder)))
    program.chmod(0o755)
    script = "set -eu\n" + smoke_test.script(NODES, network, "proven", second=second)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(
        ["sh"], input=script, capture_output=True, text=True, timeout=60, env={"PATH": path, "TMPDIR": folder}
    )


@pytest.mark.parametrize(
    ("network", "second", "subnets"),
    [
        ("flannel-vxlan", None, ["10.0.0"]),
        ("macvlan", None, ["10.9.0"]),
        ("weavenet", "macvlan", ["10.0.0", "10.9.0"]),
    ],
)
def test_each_pod_asks_the_next_and_few_do_at_a_time(
    tmp_path: Path, network: str, second: str | None, subnets: Sequence[str]
) -> None:
    done = run(tmp_path, network, second=second)
    assert done.returncode == 0, done.stderr
    asked = sorted((tmp_path / "asked").read_text().splitlines())
    neighbors = [(node, (number + 1) % 50) for number, node in enumerate(NODES)]
    assert asked == [f"smoke-{node} {subnet}.{next_}:7000" for node, next_ in neighbors for subnet in subnets]
    assert max(map(int, (tmp_path / "counts").read_text().split())) <= smoke_test.PARALLEL
    assert not list(tmp_path.glob("tmp.*"))


def test_multicast_must_pass_on_the_second_network_too(tmp_path: Path) -> None:
    done = run(tmp_path, "weavenet", second="macvlan", deaf="net1")
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["multicast does not reach another node"]


def test_pods_that_reach_no_other_are_named_last(tmp_path: Path) -> None:
    done = run(tmp_path, "flannel-vxlan", "n07", "n31")
    assert done.returncode == 1
    failed = ["smoke-n07 cannot reach 10.0.0.8", "smoke-n31 cannot reach 10.0.0.32"]
    assert sorted(done.stderr.splitlines()[-2:]) == failed
    assert len((tmp_path / "asked").read_text().splitlines()) == 50
    assert not list(tmp_path.glob("tmp.*"))


@pytest.mark.parametrize("network", ["flannel-vxlan", "macvlan"])
def test_pods_without_an_address_are_named_before_any_is_probed(tmp_path: Path, network: str) -> None:
    done = run(tmp_path, network, without=["n07", "n31"])
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "pods without an address: smoke-n07 smoke-n31"
    assert not (tmp_path / "asked").exists()
    assert not list(tmp_path.glob("tmp.*"))


@pytest.mark.parametrize(
    ("families", "second"), [(["ipv4"], None), (["ipv6", "ipv4"], None), (["ipv4"], "macvlan")]
)
def test_the_connection_lasts_as_long_as_the_slowest_test(
    families: list[IpFamily], second: str | None
) -> None:
    for nodes in (1, 8, 9, 72, 200):
        networks = 2 if second else 1
        rounds = networks * (len(families) * -(-nodes // smoke_test.PARALLEL) + 1)
        pods_s = limits.of_cluster(limits.SMOKE_PODS_S, nodes)
        assert smoke_test.limit_s(nodes, families, second) > pods_s + smoke_test.TIMEOUT_S * rounds
