"""Run the k8sdds command with the pinned checksums of a JSON file. Usage: official_command.py FILE ARGUMENT…"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from k8sdds.bundle import official
from k8sdds.cli.main import run

pinned = json.loads(Path(sys.argv[1]).read_text())
official.checksums = lambda: pinned
sys.argv = ["k8sdds", *sys.argv[2:]]
run()
