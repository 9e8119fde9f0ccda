"""Tests of k8sdds, and what several folders of tests use. Its failed assertions show the values, as those of tests do."""

from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{module.stem}" for module in Path(__file__).parent.glob("*.py"))
)
