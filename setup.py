"""Package k8sdds: the Python code, and the YAML and XML folders that users read and copy."""

import runpy
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
# Installed to PREFIX/share/k8sdds, where k8sdds.system.paths looks for them.
SHARED = ("profiles", "experiments", "qos", "security", "deploy")


def shared_files() -> list[tuple[str, list[str]]]:
    """Return the files of the shared folders in the form that setuptools expects: (target folder, files)."""
    groups: dict[str, list[str]] = {}
    for top in SHARED:
        for path in sorted((HERE / top).rglob("*")):
            if path.is_file():
                relative = path.relative_to(HERE)
                groups.setdefault(f"share/k8sdds/{relative.parent}", []).append(str(relative))
    return list(groups.items())


setup(
    name="k8sdds",
    version=runpy.run_path(str(HERE / "k8sdds" / "versions.py"))["K8SDDS"],
    description="Measure what Kubernetes networks and DDS settings cost publish/subscribe applications",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["k8sdds", "k8sdds.*"]),
    package_data={
        "k8sdds.artifact": ["templates/*"],
        "k8sdds.nodes": ["*.sh"],
        "k8sdds.report": ["templates/*"],
    },
    data_files=shared_files(),
    install_requires=[
        "typer>=0.12",
        "rich>=13.7",
        "pydantic>=2.6",
        "ruamel.yaml>=0.18",
        "hdrhistogram>=0.10",
        "numpy>=1.26",
        "pandas>=2.2",
        "pyarrow>=15",
        "scipy>=1.12",
        "matplotlib>=3.8",
        "jinja2>=3.1",
        "rocrate>=0.13",
        "cryptography>=43",
        "prometheus-client>=0.20",
        "kubernetes>=31",
    ],
    extras_require={
        "test": [
            "hypothesis>=6.100",
            "import-linter>=2.5",
            "mypy>=1.15",
            "pytest>=8",
            "pytest-xdist>=3.6",
            "ruff>=0.9",
            "selenium>=4.18",
        ]
    },
    entry_points={"console_scripts": ["k8sdds = k8sdds.cli.main:run"]},
)
