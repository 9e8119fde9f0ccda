"""Leave out user ids that a testbed cannot give to participants."""

from __future__ import annotations

from collections.abc import Callable

from k8sdds.model.application import ApplicationExperiment
from k8sdds.model.experiment import Experiment


def supported(
    experiment: Experiment, has_others: Callable[[str], bool], why: str
) -> tuple[Experiment, list[str]]:
    """Remove `users: other` from sweeps for the middlewares without it; return the experiment and what was removed.

    `why` is the reason, which is part of the names of what was removed. If nothing else would remain, nothing is
    removed, so that the check reports why.
    """
    if isinstance(experiment, ApplicationExperiment):
        return experiment, []
    sweeps = []
    removed: dict[str, None] = {}
    for sweep in experiment.sweeps:
        having = [name for name in sweep.middleware if has_others(name)]
        missing = [name for name in sweep.middleware if name not in having]
        if "other" not in sweep.users or not missing:
            sweeps.append(sweep)
            continue
        removed |= dict.fromkeys(f"users other with {name} ({why})" for name in missing)
        same = [value for value in sweep.users if value != "other"]
        parts = [{"middleware": having}, {"middleware": missing, "users": same}]
        sweeps += [sweep.model_copy(update=part).at(sweep.where) for part in parts if all(part.values())]
    return (experiment.model_copy(update={"sweeps": sweeps}), list(removed)) if sweeps else (experiment, [])
