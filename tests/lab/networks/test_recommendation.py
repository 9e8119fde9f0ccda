"""The files of a recommended configuration are accepted by the middlewares and by k8sdds-perftest."""

from __future__ import annotations

import json
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

from k8sdds.campaign import experiments, preflight
from k8sdds.campaign.expansion import expand
from k8sdds.recommend import files
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.paths import native_program
from tests import recordings
from tests.conftest import Command
from tests.unit.test_recommendation import answered

CYCLONE = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
for text in sys.argv[2:]:
    domain = library.dds_create_domain(7, text.encode())
    if domain <= 0:
        sys.exit(text)
    library.dds_delete(domain)
"""
FAST = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
factory = "_ZN8eprosima7fastdds3dds24DomainParticipantFactory"
instance, load = library[factory + "12get_instanceEv"], library[factory + "24load_XML_profiles_stringEPKcm"]
instance.restype, load.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
for text in sys.argv[2:]:
    if load(instance(), text.encode(), len(text.encode())):
        sys.exit(text)
"""
LIBRARIES = {
    "cyclonedds": ("ddsc", CYCLONE, "<Bad/>"),
    "fastdds": ("fastrtps", FAST, "<profiles><bad/></profiles>"),
}


def written(folder: Path, middleware: str, transport: str) -> Path:
    choices = {"middleware": middleware, "transport": transport, "message_bytes": "max"}
    files.write(answered(folder, **choices), folder / "out")
    return folder / "out"


@pytest.mark.parametrize("middleware", LIBRARIES)
def test_the_library_accepts_the_whole_file(middleware: str, tmp_path: Path) -> None:
    name, program, wrong = LIBRARIES[middleware]
    library = find_library(name)
    if library is None:
        pytest.skip(f"the library {name} of Debian 12 is not installed")
    texts = [
        (written(tmp_path / transport, middleware, transport) / f"{middleware}.xml").read_text()
        for transport in ("unicast", "multicast")
    ]
    for text in texts:
        done = subprocess.run([sys.executable, "-c", program, library, text], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert subprocess.run([sys.executable, "-c", program, library, wrong], capture_output=True).returncode


@pytest.mark.parametrize("middleware", LIBRARIES)
def test_perftest_accepts_the_measured_part_and_the_qos_profiles(middleware: str, tmp_path: Path) -> None:
    folder = written(tmp_path, middleware, "unicast")
    expansion = expand(experiments.load(str(folder / "confirm.yaml")))
    assert preflight._refused_files(expansion) == []
    for profile in folder.glob("qos-*.xml"):
        argv = [native_program("k8sdds-perftest"), "-pub", "-check", "-middleware", middleware, "-nic", "lo"]
        done = subprocess.run([*argv, "-qosFile", str(profile)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_a_recording_of_30_topics_can_be_searched(k8sdds: Command, tmp_path: Path) -> None:
    recordings.rosbag2(tmp_path / "my-recording", recordings.robot(), "mcap-files")
    assert k8sdds("init", "application", "my-robot", "--from", "my-recording").returncode == 0
    done = k8sdds("recommend", "my-robot.yaml", "--dry-run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Dry run: all checks passed" in done.stdout and "cannot decide" not in done.stdout


@pytest.mark.long
@pytest.mark.usefixtures("nothing_left")
def test_a_search_ends_with_files_that_can_be_measured(k8sdds: Command, tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text(
        "name: small\nflows: [{name: commands, payload_bytes: 64, rate: 400, delay: p90 <= 50 ms}]\n"
        "choices: {networks: [flannel-hostgw, flannel-vxlan], receive_mode: listener}\n"
        "duration_s: 1\nwarmup_s: 0\n"
    )
    searched = k8sdds("recommend", "small.yaml", "--max-trials", "12", "-o", "run")
    assert searched.returncode in (0, 8), searched.stdout + searched.stderr
    run = RunFolder.open(tmp_path / "run")
    assert len({attempt["trial_id"] for attempt in run.attempts()}) <= 12
    answer = json.loads((run.report / "recommendation.json").read_text())
    assert answer["recommended"]["choices"]["network"] in ("flannel-hostgw", "flannel-vxlan")
    again = k8sdds("recommend", "small.yaml", "--from", "run", "--json")
    assert json.loads(again.stdout)["recommended"] == answer["recommended"]
    confirmed = k8sdds("run", "run/report/configuration/confirm.yaml", "--repeat", "1", "-o", "confirmed")
    assert confirmed.returncode == 0, confirmed.stdout + confirmed.stderr
