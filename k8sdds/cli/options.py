"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from k8sdds.cli.commands import completion, option
from k8sdds.system import yaml_template
from k8sdds.system.errors import InputError

if TYPE_CHECKING:
    from k8sdds.campaign import experiments
    from k8sdds.model.profile import Profile
    from k8sdds.system.ssh import Connections, Target


def split_list(text: str) -> list[str]:
    """Return the items of a comma-separated option."""
    return [item.strip() for item in text.split(",") if item.strip()]


def load_profile(name: str, limit: list[str] | None = None) -> Profile:
    """Load a profile by name or path and check that it has every node of `--limit`."""
    from k8sdds.deploy import profiles

    profile = profiles.load(name)
    nodes = [node.name for node in profile.nodes]
    for node in limit or ():
        if node not in nodes:
            raise InputError(f"--limit {node}: not in this profile", f"use one of: {', '.join(nodes)}")
    return profile


def any_given(*options: Any) -> bool:
    """Return whether the user gave any of these options or groups of options, which are None otherwise."""
    values = (value for each in options for value in (vars(each).values() if is_dataclass(each) else [each]))
    return any(value is not None for value in values)


def check_quantities(names: list[str] | None) -> None:
    """Raise InputError if `--quantity` names something else than metrics whose ratios can be tested."""
    from k8sdds.results.metrics import METRICS
    from k8sdds.system.yaml_text import nearest

    comparable = [metric.name for metric in METRICS.values() if metric.log]
    for name in names or ():
        if name not in comparable:
            raise InputError(
                f"--quantity {name}: cannot be compared{nearest(name, comparable)}",
                "leave it out for the main metrics, or name another, such as latency_p99_us or publisher_cpu_percent",
            )


def complete_settings(incomplete: str) -> list[str]:
    """Complete the keys of experiments and sweeps, each with `=`."""
    from k8sdds.campaign import experiments

    keys = [*experiments.PER_EXPERIMENT, *experiments.PER_SWEEP]
    return sorted({f"{key}=" for key in keys if key.startswith(incomplete)})


Force = Annotated[
    bool,
    "--force: Change the cluster although a campaign is running on it. The campaign stops if its network"
    " changes; otherwise its results are disturbed.",
]
RetryFailed = Annotated[
    bool, "--retry-failed: With --resume: also measure trials again that have used up their attempts."
]
DryRun = Annotated[bool, "--dry-run: Print what would be done, and change nothing.", "Output"]

# Experiments
ExperimentArgument = option(
    "EXPERIMENT: Name of an experiment or application (see: k8sdds list), or path of a YAML file."
)
Experiment = Annotated[str, ExperimentArgument]
Repeat = Annotated[
    int | None,
    option(
        "--repeat N: Number of repetitions of every cell. Default: as in the experiment.", "Selection", min=1
    ),
]
Duration = Annotated[
    float | None,
    option(
        "--duration SECONDS: Measured duration of each trial, in seconds. Default: as in the experiment.",
        "Selection",
        min=0.1,
    ),
]
Settings = Annotated[
    list[str] | None,
    option(
        "--set KEY=VALUE: Override a key of the experiment with a YAML value (repeatable).",
        "Selection",
        autocompletion=complete_settings,
    ),
]


Paper = Annotated[bool, "--paper: Use the durations of the paper: 120 s per trial.", "Selection"]
PskFile = Annotated[
    Path | None,
    "--psk-file FILE: Lab only: file (mode 0600) with the pre-shared key for IPsec networks. Default: a"
    " random key.",
    "Testbed",
]
Seed = Annotated[int | None, "--seed N: Seed of the random order of trials. Default: random.", "Selection"]


@dataclass(frozen=True)
class Changes:
    """The options that change an experiment or application."""

    network: Annotated[
        list[str] | None,
        "--network NETWORK: Only this network and the baseline (repeatable). Default: all networks of the"
        " experiment.",
        "Selection",
    ] = None
    link: Annotated[
        list[str] | None,
        "--link LINK: Links between the nodes: an installed link (see: k8sdds list links), or a YAML file"
        " (repeatable: an experiment is measured with each). Default: as in the experiment.",
        "Selection",
    ] = None
    repeat: Repeat = None
    duration: Duration = None
    settings: Settings = None

    @property
    def arguments(self) -> experiments.Changes:
        """The changes as loading an experiment or application applies them."""
        from k8sdds.campaign import experiments

        settings = self.settings or []
        if links := [{"like": name} for name in self.link or ()]:
            # Before --set, which may change parts of it.
            settings = [f"link={yaml_template.flow(links[0] if len(links) == 1 else links)}", *settings]
        return experiments.Changes(self.network or (), settings, self.repeat, self.duration)


# Testbeds
TestbedName = Annotated[
    str | None,
    option(
        "--testbed NAME: lab, cluster, or the name of a deployed cluster. Default: the current testbed.",
        "Testbed",
        autocompletion=completion("testbeds.selection", "names"),
    ),
]
Kubeconfig = Annotated[
    Path | None, "--kubeconfig FILE: Kubeconfig of the cluster. Default: the same as kubectl.", "Testbed"
]
Context = Annotated[
    str | None, "--context NAME: Context of the kubeconfig. Default: its current context.", "Testbed"
]


@dataclass(frozen=True)
class ClusterOptions:
    """The options that select a cluster and how to measure on it."""

    kubeconfig: Kubeconfig = None
    context: Context = None
    namespace: Annotated[
        str | None,
        "--namespace -n NAME: Existing Kubernetes namespace to use. Default: create one namespace per"
        " campaign.",
        "Testbed",
    ] = None
    pod_network: Annotated[
        str | None,
        "--pod-network NETWORK: Name of the installed pod network, in place of the detected one. Default:"
        " detected.",
        "Testbed",
    ] = None
    image: Annotated[
        str | None,
        "--image IMAGE: Container image with the supervisor and perftest. Default: the image that deploy"
        " installs.",
        "Testbed",
    ] = None
    image_login: Annotated[
        Path | None,
        "--image-login FILE: Login to the registry of the image, as `docker login` and `skopeo login"
        " --authfile` write it; an empty FILE removes it. Default: that of the nodes.",
        "Testbed",
    ] = None
    tolerate: Annotated[
        str | None,
        "--tolerate TAINT,…: Also use nodes with these taints, KEY:EFFECT, comma-separated. Default: only with"
        " those that deploy set.",
        "Testbed",
    ] = None
    meter: Annotated[
        bool | None,
        "--meter/--no-meter: Measure the background cost of the network on the nodes around each block (runs"
        " a DaemonSet). Default: no.",
        "Testbed",
    ] = None


# Profiles and machines
ProfileName = Annotated[str, "PROFILE: Name of a profile, or path of a YAML file."]
Limit = Annotated[
    list[str] | None,
    "--limit NODE: Only this node (repeatable). Other workers may be down. Default: all nodes.",
    "Machines",
]
AcceptKeys = Annotated[
    bool,
    "--accept-new-host-keys: Trust and remember unknown SSH host keys. Changed keys are always rejected.",
    "Machines",
]
AllowReboot = Annotated[
    bool,
    "--allow-reboot: Change the kernel command line of a Raspberry Pi if needed, and reboot it.",
    "Machines",
]
Yes = Annotated[bool, "--yes -y: Do not ask for confirmation. Required without a terminal."]


@dataclass(frozen=True)
class SshOptions:
    """The options that say how to reach the machines of a profile."""

    accept_new_host_keys: AcceptKeys = False
    concurrency: Annotated[
        int, option("--concurrency N: Number of machines to work on in parallel.", "Machines", min=1, max=200)
    ] = 20

    def connect(self, targets: Sequence[Target]) -> Connections:
        """Return connections to machines, which open when they are used."""
        from k8sdds.system.ssh import Connections

        return Connections(targets, self.accept_new_host_keys, self.concurrency)


# Software, run folders and claims
Architectures = Annotated[
    str, "--arch ARCH,…: Architectures, comma-separated: amd64, arm64. Default: this machine's."
]
ClaimsFile = Annotated[str, "--claims CLAIMS: Name of a set of claims, or path of a YAML file."]
Quantities = Annotated[
    list[str] | None,
    "--quantity NAME: Use this metric, such as latency_p99_us (repeatable). Default: the headline metric"
    " of each test.",
]
