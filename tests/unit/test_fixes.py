"""The fixes of `k8sdds status --fix`, planned from facts of machines that need them."""

from __future__ import annotations

import subprocess

import pytest

from k8sdds.deploy import facts, fixes
from k8sdds.deploy.actions import PRELUDE
from k8sdds.deploy.fixes import RPI_SWAP_FILE, Fix
from tests.unit.test_preflight import PI, PROFILE, changed, parsed

BOARD = {**PI, "swap_kib": "524284"}
DPHYS = "swap\t/var/swap var-swap.swap\nswap_by\tdphys-swapfile.service\n"
RPI = "swap\t/dev/zram0 dev-zram0.swap\nswap_by\trpi-swap\n"
FSTAB = "swap\t/swap.img swap.img.swap\n"


def fixes_of(text: str, profile: str = PROFILE) -> list[Fix]:
    planned = fixes.plan(parsed(profile), {"pi1": facts.parse(text)})
    for fix in planned:
        subprocess.run(["sh", "-n"], input=(PRELUDE + fix.action.script).encode(), check=True)
        assert fix.title.startswith("pi1: ") and fix.preview
    return planned


def test_machine_that_fits_has_no_fixes() -> None:
    assert fixes_of(changed(**PI)) == []


@pytest.mark.parametrize(
    ("swap", "commands", "files"),
    [
        (
            DPHYS,
            ["$ systemctl stop dphys-swapfile.service", "$ swapoff /var/swap"],
            ["dphys-swapfile.service.d/90-k8sdds.conf", "var-swap.swap.d/90-k8sdds.conf"],
        ),
        (RPI, ["$ swapoff /dev/zram0"], [RPI_SWAP_FILE, "dev-zram0.swap.d/90-k8sdds.conf"]),
        (FSTAB, ["$ swapoff /swap.img"], ["swap.img.swap.d/90-k8sdds.conf"]),
        (
            "swap\t/dev/zram0 dev-zram0.swap\nswap_by\tzramswap.service\n",
            ["$ systemctl stop zramswap.service", "$ swapoff /dev/zram0"],
            ["zramswap.service.d/90-k8sdds.conf"],
        ),
        # Names are data, never shell code.
        ("swap\t/a;reboot a.swap\n", ["$ swapoff '/a;reboot'"], ["a.swap.d/90-k8sdds.conf"]),
    ],
)  # fmt: skip
def test_swap_is_turned_off_now_and_at_boot(swap: str, commands: list[str], files: list[str]) -> None:
    (fix,) = fixes_of(changed(**BOARD) + swap)
    assert [line for line in fix.preview if line.startswith("$")] == commands and not fix.reboots
    for file in files:
        assert any(line.startswith("+++ ") and line.endswith(file) for line in fix.preview), fix.preview
        assert any(line.startswith("put ") and file in line for line in fix.action.script.splitlines())
    if RPI_SWAP_FILE in files:
        assert "+Mechanism=none" in fix.preview


@pytest.mark.parametrize(
    ("system", "kernel", "package"),
    [
        ("ubuntu", "6.8.0-1013-raspi", "linux-modules-extra-raspi"),
        ("ubuntu", "5.15.0-1023-kvm", "linux-modules-extra-5.15.0-1023-kvm"),
        ("debian", "6.12.34+rpt-rpi-2712", None),
    ],
)
def test_missing_kernel_modules_are_installed_on_ubuntu(
    system: str, kernel: str, package: str | None
) -> None:
    text = changed(**{**PI, "os__ID": system, "kernel": kernel}).replace("feature\tvxlan\n", "")
    planned = fixes_of(text)
    assert [fix.action.title for fix in planned] == (
        [f"install the kernel modules of vxlan ({package})"] if package else []
    )
    # A network that does not need the module needs no package.
    assert fixes_of(text, PROFILE + "network: flannel-hostgw\n") == []


def test_memory_cgroup_is_enabled_last_with_a_reboot() -> None:
    board = {**BOARD, "controllers": "cpuset cpu", "boot_file": "/boot/firmware/cmdline.txt"}
    swap, cgroup = fixes_of(changed(**board, boot_line="console=tty1 cgroup_disable=memory") + FSTAB)
    assert cgroup.reboots and not swap.reboots
    assert "-console=tty1 cgroup_disable=memory" in cgroup.preview
    assert "+console=tty1 cgroup_enable=cpuset cgroup_memory=1 cgroup_enable=memory" in cgroup.preview
    assert cgroup.preview[-1] == "$ systemctl reboot"
