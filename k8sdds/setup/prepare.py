"""Plan what a machine is missing for a purpose, and apply the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from k8sdds.networks import features
from k8sdds.setup import native, packages, root
from k8sdds.setup.packages import Purpose
from k8sdds.system import kernel_features
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import built_folder

WITHOUT_ROOT = "list, show, import, report, compare and claims work without them"


@dataclass(frozen=True)
class Plan:
    """What is missing on this machine. Empty if the machine is ready."""

    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    """Kernel modules that are available but not loaded."""
    build: bool = False
    """Whether the native programs must be built."""

    @property
    def needs_root(self) -> bool:
        """Whether the plan changes the system."""
        return bool(self.packages or self.modules)

    def describe(self) -> list[str]:
        """Return one line per change."""
        lines = []
        if self.packages:
            lines.append(f"install Debian packages: {', '.join(self.packages)}")
        if self.modules:
            lines.append(f"load kernel modules until the next boot: {', '.join(self.modules)}")
        if self.build:
            lines.append(f"build the native programs in {built_folder()}")
        return lines


def plan(purposes: Sequence[Purpose]) -> Plan:
    """Return what is missing for the purposes. Makes no changes.

    Raises:
        PrerequisiteError: This system has no Debian packages.
    """
    names = dict.fromkeys(name for purpose in purposes for name in purpose.packages)
    modules = dict.fromkeys(
        module for feature in features() for module in kernel_features.unloaded_modules(feature)
    )
    return Plan(tuple(packages.missing(list(names))), tuple(modules), not native.is_current())


def apply(
    plan: Plan, report: Callable[[str], None], progress: Callable[[str], None] = lambda _: None
) -> None:
    """Apply a plan, as far as this user can.

    Without root, the native programs are built if a compiler is installed.

    Args:
        plan: The plan.
        report: Receives steps and notes.
        progress: Receives the lines of the build of the native programs.

    Raises:
        PrerequisiteError: A step failed, or packages are still missing.
    """
    if plan.needs_root and root.is_available():
        _change_system(plan, report)
    elif plan.modules:
        report(f"kernel modules are not loaded, because you are not root: {', '.join(plan.modules)}")
    still_missing = packages.missing(plan.packages)
    if plan.build and (not still_missing or native.can_build()):
        _build(report, progress, bool(still_missing))
    if still_missing:
        names = " ".join(packages.available_name(name) or name for name in still_missing)
        raise PrerequisiteError(
            f"packages are missing, and you cannot install them without root: {names}",
            f"ask an administrator to run: apt-get install {names}\n"
            f"    then run k8sdds setup again; {WITHOUT_ROOT}",
        )


def _build(report: Callable[[str], None], progress: Callable[[str], None], may_fail: bool) -> None:
    """Build the native programs. A failure that missing packages explain is only reported."""
    try:
        native.build(report, progress)
    except PrerequisiteError as error:
        if not may_fail:
            raise
        report(str(error))


def _change_system(plan: Plan, report: Callable[[str], None]) -> None:
    if plan.packages:
        report(f"installing {len(plan.packages)} Debian packages")
        packages.install(plan.packages)
    for module in plan.modules:
        if root.as_root("modprobe", module):
            report(f"cannot load the kernel module {module}; k8sdds doctor shows what needs it")
