"""Make the generated run folders of tests/report available."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "report"))
