"""The lab creates the kernel objects of the real daemons: those of Flannel here, those of other networks after a switch."""

from __future__ import annotations

from tests.clusters import Deployed
from tests.deploy import lab_objects
from tests.deploy.switched import inside_of


def test_the_lab_has_the_objects_of_flannel(one_machine: Deployed) -> None:
    assert lab_objects.undeclared("flannel-vxlan", one_machine, inside_of(one_machine)) == []
