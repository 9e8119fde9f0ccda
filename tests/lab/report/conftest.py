"""Make the reports of generated run folders available."""

from tests.reports import reports, small_images  # noqa: F401 (fixtures)
