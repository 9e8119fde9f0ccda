"""Record the attempts of a run folder as inputs of test_attempt.py: `python record.py RUN_FOLDER`.

The run folder is the result of `k8sdds run` with an experiment that contains:

sweeps: [{networks: host, test: latency},
         {networks: host, test: paced, rate: 400, subscribers: 2},
         {networks: host, test: graph, graph: …} with three nodes, one of which publishes after others,
         {networks: host, test: {name: paced, deadline_ms: 4}, rate: 400, subscribers: 2},
         {networks: host, test: outage, rate: 100},
         {networks: baremetal, test: paced, rate: 30, payload_bytes: 524288, reliability: best-effort, link: {rate_mbit: 300, loss: {percent: 40}}},
         {networks: host, test: {name: discovery, processes: 3, members: 2, steady_s: 2, change: restart-process}, topics: 2},
         {networks: weavenet, test: {name: throughput, loaded_latency: true}, subscribers: 2, transport: multicast},
         {networks: weavenet, test: {name: throughput, loaded_latency: true}, subscribers: 2, reliability: best-effort}]
"""

import json
import re
import shutil
import sys
from pathlib import Path

from k8sdds.results.run_folder import RunFolder
from k8sdds.system.paths import CHECKOUT

run = RunFolder.open(Path(sys.argv[1]))
for record in run.attempts():
    stream = record["transport"].replace("unicast", "best-effort")
    name = stream if record["test"] == "throughput" else record["test"]
    name = "deadline" if record.get("deadline_ms") else name
    name = "nothing-arrived" if record["received"] == 0 else name
    target = Path(__file__).parent / "recorded" / name
    raw = run.raw(record["trial_id"], record["attempt"])
    target.mkdir(parents=True, exist_ok=True)
    for path in filter(Path.is_file, raw.iterdir()):
        shutil.copy(path, target)
    for participant in filter(Path.is_dir, raw.iterdir()):
        (target / participant.name).mkdir(parents=True, exist_ok=True)
        files = ["stdout", "stderr", "meters.json"]
        files += (
            ["latency.hlog"]
            if record["test"] in ("paced", "graph", "discovery") and participant.name != "pub0"
            else []
        )
        files += ["arrivals.csv"] if record["test"] == "outage" and participant.name != "pub0" else []
        for file in files:
            text = (participant / file).read_text()
            text = text.replace(str(CHECKOUT), "/opt/k8sdds").replace(
                str(run.path.resolve()), "/runs/recorded"
            )
            (target / participant.name / file).write_text(re.sub(r"process_api/[0-9a-f]+", "own", text))
    expected = {"trial": run.campaign["trials"][record["trial_id"]], "record": record}
    (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
