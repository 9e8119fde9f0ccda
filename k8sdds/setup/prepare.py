"""Plan what a machine is missing for a purpose, and apply the plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from k8sdds.networks import features
from k8sdds.setup import native, packages, root
from k8sdds.setup.packages import Purpose
from k8sdds.system import kernel_features
from k8sdds.system.errors import PrerequisiteError
from k8sdds.system.paths import BUNDLED, built_folder

_FOR_BUILD = (*packages.BUILD, *packages.BUILD_ZENOH, *packages.BUILD_ROS2)
WITHOUT_ROOT = "list, show, import, report, compare and claims work without them"


@dataclass(frozen=True)
class Plan:
    """What is missing on this machine. Empty if the machine is ready."""

    packages: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    """Kernel modules that are available but not loaded."""
    build: bool = False
    """Whether the native programs must be built."""
    for_tests: bool = False
    """Whether to build those that only tests run, too."""
    requested: tuple[str, ...] = ()
    """Backends to build that are built only on request."""

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
    """Return the missing prerequisites of the purposes. Makes no changes.

    Raises PrerequisiteError if the programs of a wheel, which are never built again, do not include a middleware.
    """
    requested = tuple(dict.fromkeys(name for purpose in purposes for name in purpose.backends))
    if BUNDLED.is_dir() and (absent := native.missing_middlewares(requested)):
        raise PrerequisiteError(
            f"the programs of this installation do not include {' and '.join(absent)}",
            "install k8sdds from its sources",
        )
    names = dict.fromkeys(name for purpose in purposes for name in purpose.packages)
    modules = dict.fromkeys(
        module for feature in features() for module in kernel_features.unloaded_modules(feature)
    )
    for_tests = any(purpose.tests for purpose in purposes)
    missing = tuple(packages.missing(list(names)))
    return Plan(missing, tuple(modules), not native.is_current(for_tests, requested), for_tests, requested)


def apply(
    plan: Plan, report: Callable[[str], None], progress: Callable[[str], None] = lambda _: None
) -> None:
    """Apply a plan, as far as this user can. `progress` receives the lines of the build of the native programs.

    Without root, the native programs are built if a compiler is installed.
    """
    # The programs are built while the packages are installed that the build does not need.
    with ThreadPoolExecutor(1) as other:
        building = None
        if plan.needs_root and root.is_available():
            first = [name for name in plan.packages if name in _FOR_BUILD]
            rest = [name for name in plan.packages if name not in _FOR_BUILD]
            _install(first, report, update=True)
            building = other.submit(_build, plan, report, progress)
            _install(rest, report, update=not first)
            _load(plan.modules, report)
        elif plan.modules:
            names = ", ".join(plan.modules)
            report(f"kernel modules are not loaded, because you are not root: {names}")
        (building or other.submit(_build, plan, report, progress)).result()
    still_missing = packages.missing(plan.packages)
    if still_missing:
        available = packages.available_names(still_missing)
        names = " ".join(available.get(name, name) for name in still_missing)
        raise PrerequisiteError(
            f"packages are missing, and you cannot install them without root: {names}",
            f"ask an administrator to run: apt-get install {names}\n"
            f"    then run k8sdds setup again; {WITHOUT_ROOT}",
        )


def _install(names: Sequence[str], report: Callable[[str], None], update: bool) -> None:
    if names:
        report(f"installing {len(names)} Debian packages")
        if update:
            packages.update(report)
        packages.install(names, report)


def _load(modules: Sequence[str], report: Callable[[str], None]) -> None:
    for module in modules:
        if root.as_root("modprobe", module):
            report(f"cannot load the kernel module {module}; k8sdds doctor shows what needs it")


def _build(plan: Plan, report: Callable[[str], None], progress: Callable[[str], None]) -> None:
    """Build the native programs, if it is possible. A failure that missing packages explain is only reported."""
    lacking = bool(packages.missing([name for name in plan.packages if name in _FOR_BUILD]))
    if not plan.build or (lacking and not native.can_build()):
        return
    try:
        native.build(report, progress, plan.for_tests, plan.requested)
    except PrerequisiteError as error:
        if not lacking:
            raise
        report(str(error))
