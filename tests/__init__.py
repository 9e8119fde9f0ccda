"""Tests of k8sdds, and the modules that they share."""

import sys
from pathlib import Path

# pytest shows the values of failed assertions only in test modules, and in modules registered before they are imported.
# The stand-ins for Connext also import this package, in a Python that does not have pytest.
if pytest := sys.modules.get("pytest"):
    pytest.register_assert_rewrite(*(f"{__name__}.{path.stem}" for path in Path(__file__).parent.iterdir()))
