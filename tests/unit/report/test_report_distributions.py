"""Which trials and percentiles a figure of distributions shows."""

from k8sdds.report import content
from k8sdds.report.figures import distributions
from k8sdds.report.figures.distributions import Distribution
from k8sdds.report.settings import Point
from k8sdds.results.run_folder import RunFolder
from tests import run_folders as folders


def panels(run):
    read = content.read(RunFolder.open(run.path))
    (setting,) = read.settings
    return distributions._distributions(read, setting, "paced")


def test_a_panel_contains_delays_of_one_method(tmp_path):
    run = folders.camera(tmp_path / "run")
    before = panels(run)
    items = run.attempts()
    for item in items:
        item["delay_method"] = "shared clock"
    other = next(item for item in items if item["network"] == "host" and item["payload_bytes"] == 1024)
    other["delay_method"] = "round trip / 2"
    log = run.raw(other["trial_id"], other["attempt"]) / "sub0/latency.hlog"
    log.write_text(log.read_text().replace("Tag=one_way", "Tag=half_round_trip"))
    folders.rewritten(run, items)
    trials = {
        (point.payload_bytes, label): merged.trials
        for point, networks in before.items()
        for label, merged in networks.items()
    }
    trials[1024, "host"] -= 1
    assert trials == {
        (point.payload_bytes, label): merged.trials
        for point, networks in panels(run).items()
        for label, merged in networks.items()
    }


def test_the_text_has_no_percentile_with_too_few_values(tmp_path):
    run = folders.camera(tmp_path / "run")
    (setting,) = content.read(run).settings
    point = Point(4, 1024)
    few = Distribution([0, 0.5, 0.9], [1.0, 2.0, 3.0], samples=100, trials=1)
    assert "host 2.00 and –" in distributions._alt("Delay", setting, {point: {"host": few}})
