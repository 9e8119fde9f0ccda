"""Add the files outside of the Python package to the distribution; pyproject.toml holds everything else."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from setuptools import Command, setup
from setuptools.command.build import build

SHIPPED = ("deploy", "docs", "experiments", "links", "perftest-images", "profiles", "qos", "security")
"""Folders that users read, and the sources of the native programs."""


class BuildShipped(Command):
    """Copy the shipped folders to k8sdds/_shipped, where k8sdds.system.paths looks for them.

    The methods are setuptools' protocol for sub-commands of `build`. An editable installation needs no copy,
    because it uses the folders of the source tree.
    """

    user_options: ClassVar[list[tuple[str, str, str]]] = []
    editable_mode = False

    def initialize_options(self) -> None:
        """Declare the options."""
        self.build_lib: str | None = None

    def finalize_options(self) -> None:
        """Use the same target folder as the Python code."""
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def get_source_files(self) -> list[str]:
        """Return the files, relative to the source tree; the source distribution contains them too."""
        return sorted(str(path) for top in SHIPPED for path in Path(top).rglob("*") if path.is_file())

    def get_output_mapping(self) -> dict[str, str]:
        """Return the source of each file that `run` writes."""
        if self.editable_mode:
            return {}
        target = Path(self.build_lib or "", "k8sdds", "_shipped")
        return {str(target / source): source for source in self.get_source_files()}

    def get_outputs(self) -> list[str]:
        """Return the files that `run` writes."""
        return list(self.get_output_mapping())

    def run(self) -> None:
        """Copy the files."""
        for target, source in self.get_output_mapping().items():
            self.mkpath(str(Path(target).parent))
            self.copy_file(source, target)


class Build(build):
    """Build the Python code and the shipped folders."""

    sub_commands: ClassVar = [*build.sub_commands, ("build_shipped", None)]


setup(cmdclass={"build": Build, "build_shipped": BuildShipped})
