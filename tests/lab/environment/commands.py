"""Run k8sdds commands in forked processes that have imported everything.

Started with inject.so preloaded. Reads one JSON request per line, `{"argv", "folder", "output"}`, runs the command
in the folder with stdout and stderr in the files `output`.out and `output`.err, and prints the exit status.
"""

from __future__ import annotations

import json
import os
import sys
import traceback

import matplotlib.backends.backend_agg
import matplotlib.figure
import pandas as pd
import pyarrow.parquet
import seaborn  # noqa: F401

from k8sdds import report
from k8sdds.artifact import archive  # noqa: F401
from k8sdds.campaign import experiments, run  # noqa: F401
from k8sdds.cli import main
from k8sdds.report import content, csv_tables, figures, html, terminal  # noqa: F401
from k8sdds.testbeds.lab import testbed  # noqa: F401

IMPORTED = (matplotlib.figure, pd, pyarrow.parquet, report)


def run_command(argv: list[str], folder: str, output: str) -> None:
    """Run a command in this process, and end the process like the console script."""
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        file = os.open(f"{output}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(file, number)
        os.close(file)
    sys.argv = ["k8sdds", *argv]
    code = 1
    try:
        main.run()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve() -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            run_command(**request)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    serve()
