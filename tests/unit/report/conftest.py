"""Make the reports of generated run folders available."""

from tests.reports import reports  # noqa: F401 (a fixture)
