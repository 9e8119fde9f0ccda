"""Run campaigns inside the virtual machine, without the command's report, which takes minutes there.

As a program, it prints a line of JSON about an experiment, which is JSON too: `EXPERIMENT KEY...`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from k8sdds.campaign import experiments
from k8sdds.campaign import run as campaign
from k8sdds.cli.run import Display
from k8sdds.cli.testbed import open_testbed
from k8sdds.results.run_folder import RunFolder
from k8sdds.testbeds.selection import SelectedTestbed


def measured(experiment: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """Return these keys of all attempts of an experiment, and why trials are invalid."""
    with tempfile.TemporaryDirectory() as name:
        file, folder = Path(name) / "experiment.yaml", Path(name) / "run"
        file.write_text(json.dumps(experiment))
        loaded = experiments.load(str(file))
        request = campaign.Request(loaded, loaded.name, folder, 1, (), dry_run=False)
        with open_testbed(SelectedTestbed(), loaded.name, loaded.name, None) as testbed:
            failed = campaign.run(request, testbed, Display())
        attempts = [{key: attempt.get(key) for key in keys} for attempt in RunFolder(folder).attempts()]
        return {"invalid": str(failed or ""), "attempts": attempts}


if __name__ == "__main__":
    print("\n" + json.dumps(measured(json.loads(sys.argv[1]), tuple(sys.argv[2:]))))
