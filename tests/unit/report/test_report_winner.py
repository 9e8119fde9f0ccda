"""The sentences about which network is shown to be the best."""

import json

import pytest

from k8sdds.report import content
from k8sdds.report.winner import winner_sentences
from tests import run_folders as folders

POD_NETWORKS = ("host", "flannel-vxlan", "flannel-hostgw", "weavenet")


def sentences(path, **options):
    run = folders.make(path, folders.Plan(**({"histograms": False, "payloads": (1024,)} | options)))
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in winner_sentences(content.read(run))]


def test_the_best_network_is_compared_with_the_others_but_not_with_the_baseline(tmp_path):
    throughput, latency = sentences(tmp_path, networks=POD_NETWORKS, repetitions=10, noise=0.01)
    # Table I: 24.5 % of flannel-hostgw, 30.1 % of flannel-vxlan and 49.1 % of weavenet at 1 KiB.
    assert throughput.startswith("Throughput, 1 KiB: flannel-hostgw is 1.")
    assert " as fast as flannel-vxlan and 1." in throughput and throughput.endswith(" as fast as weavenet.")
    assert latency.startswith("p90 latency, 1 KiB: flannel-hostgw is ")
    assert " lower than flannel-vxlan and " in latency and "host " not in throughput + latency


def test_nothing_is_claimed_without_evidence(tmp_path):
    few = sentences(tmp_path / "few", networks=POD_NETWORKS, noise=0.6)
    assert few[0] == "Throughput, 1 KiB: none is shown to be the fastest."
    assert few[1] == "p90 latency, 1 KiB: none is shown to be the lowest."
    two = sentences(tmp_path / "two", networks=("host", "kube-router"), payloads=(16384,), noise=0.6, seed=3)
    assert two[0] == "Throughput, 16 KiB: neither host nor kube-router is shown to be faster."
    one = sentences(tmp_path / "one", networks=POD_NETWORKS, repetitions=1)
    assert one[0].endswith(": one repetition cannot show which is faster: measure at least 3 (--repeat 3).")


def test_repetitions_that_would_show_the_best_are_named(tmp_path):
    (text,) = sentences(tmp_path, networks=POD_NETWORKS, tests=("throughput",), noise=0.2)
    assert text.startswith("Throughput, 1 KiB: none is shown to be the fastest; about ")
    assert text.endswith(" would show that flannel-hostgw is, if the values stay as they are.")


def test_a_network_that_is_as_good_is_named(tmp_path):
    (text,) = sentences(
        tmp_path, networks=("flannel-hostgw", "kube-router", "weavenet"), tests=("throughput",), baseline=None,
        repetitions=10, noise=0.01,
    )  # fmt: skip
    assert "as fast as weavenet, not shown to be faster than " in text


@pytest.mark.parametrize("kind", ["scaling", "empty"])
def test_one_point_is_named_and_no_result_is_no_sentence(reports, kind):
    texts = winner_sentences(reports(kind).content)
    assert len(texts) == (kind == "scaling") and all("12 subscribers" in text for text in texts), texts


def test_two_networks_of_a_folder_are_compared_in_one_sentence_per_metric(tmp_path, k8sdds):
    folders.make(
        tmp_path / "run",
        folders.Plan(
            networks=("host", "weavenet"), payloads=(64, 1024), histograms=False, repetitions=10, noise=0.01
        ),
    )
    printed = k8sdds("compare", "run@host", "run@weavenet", "--output", "out")
    (line,) = [line for line in printed.stdout.splitlines() if line.startswith("Throughput, 1 KiB")]
    # 49.1 % of the throughput is lost, in Table I of the paper.
    assert line.startswith("Throughput, 1 KiB: host is 1.9") and line.endswith(" as fast as weavenet.")
    assert line in json.loads(k8sdds("report", "run", "--json").stdout)["winners"]
    assert line in (tmp_path / "out" / "compare.html").read_text()
