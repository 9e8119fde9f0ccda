"""Show how often `k8sdds recommend` finds the best configuration of an application, and with how many trials.

First measure all configurations of the flows in recommend.yaml, each as often:

  k8sdds run benchmarks/recommend.yaml --output FOLDER
  recommend.py FOLDER

The benchmark makes applications of these flows: one to three of them, each with a limit of its delay, and CPU time or
delay to minimize. For each application, the search of `k8sdds recommend` (its real planner, and its real answer)
requests trials and gets recorded ones: its round r gets repetition r of the campaign, in an order drawn for each
application and seed. A search with more rounds than recorded repetitions gets them again. A fifth of few repetitions
is less than a trial of each configuration: the search is hard, and ties are wide. Peers get as many trials:

  k8sdds     the search, with at most a fifth of the trials of the full factorial
  optuna     TPE with the requirements as constraints, if optuna is installed
  random     configurations at random, each measured twice
  again      a second full factorial, with --simulate

  found      share of searches whose answer is the best configuration of the full factorial, or a statistical tie: the
             factorial's 95 % interval of their difference contains 0, without correction; and whose answer does not
             fail a requirement in the factorial
  worse by   mean and maximum of the CPU time or delay relative to that of the best
  trials     share of the trials of the full factorial that the search used

With --simulate N, the trials are simulated instead: the median of each recorded cell, an effect of the block, and
residuals drawn from the recorded ones. The best configuration is then the true one, and the factorial has N
repetitions.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import common

from k8sdds.analysis.requirements import NOT_MET
from k8sdds.analysis.selection import Fit, scores
from k8sdds.campaign import applications, start
from k8sdds.campaign.expansion import candidates, expand
from k8sdds.model.application import Application, ApplicationExperiment, Search
from k8sdds.model.trial import Trial
from k8sdds.recommend import evidence
from k8sdds.recommend.answer import Answer, answer
from k8sdds.recommend.evidence import Option
from k8sdds.results import tidy
from k8sdds.results.record import TrialRecord
from k8sdds.results.run_folder import RunFolder
from k8sdds.system.grouping import Row

APPLICATIONS = 24
SEEDS = 5
SHARE = 0.2
COMPLETE = 0.8
"""Share of the cells that a repetition must have to count."""
METRICS = (
    "publisher_cpu_percent", "subscriber_cpu_percent", "delay_p90_us", "achieved_rate_percent", "sent", "subscribers",
)  # fmt: skip
NOISY = ("publisher_cpu_percent", "subscriber_cpu_percent", "delay_p90_us")

Measure = Callable[[Trial], Row | None]


class Recorded:
    """Returns the recorded trials of a campaign, in an order of its repetitions."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = {(row["cell_id"], row["repetition"]): row for row in rows}
        self.repetitions = sorted({row["repetition"] for row in rows})

    def shuffled(self, seed: str) -> Measure:
        """Return what a search measures."""
        order = list(self.repetitions)
        random.Random(seed).shuffle(order)

        def measure(trial: Trial) -> Row | None:
            # A trial without a valid attempt is replaced by that of the next repetition.
            first = trial.repetition % len(order)
            known = (
                self.rows.get((trial.cell.cell_id, number)) for number in [*order[first:], *order[:first]]
            )
            return next((row for row in known if row), None)

        return measure


class Simulated:
    """Draws trials from what the recorded ones show: means of cells, effects of blocks, residuals."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.first = {row["cell_id"]: row for row in rows}
        self.means: dict[str, dict[str, float]] = defaultdict(dict)
        self.residuals: dict[str, list[float]] = {}
        self.blocks: dict[str, float] = {}
        for metric in NOISY:
            by_cell: dict[str, dict[int, float]] = defaultdict(dict)
            for row in rows:
                if row.get(metric):
                    by_cell[row["cell_id"]][row["repetition"]] = math.log(row[metric])
            blocks: dict[int, list[float]] = defaultdict(list)
            for cell, own in by_cell.items():
                self.means[cell][metric] = statistics.median(own.values())
                for block, value in own.items():
                    blocks[block].append(value - self.means[cell][metric])
            effects = {block: statistics.median(values) for block, values in blocks.items()}
            self.blocks[metric] = statistics.pstdev(effects.values())
            self.residuals[metric] = [
                value - self.means[cell][metric] - effects[block]
                for cell, own in by_cell.items()
                for block, value in own.items()
            ]

    def exact(self, trial: Trial) -> Row | None:
        """Return a trial without noise."""
        cell = trial.cell.cell_id
        if len(self.means[cell]) < len(NOISY):
            return None
        return self.first[cell] | {metric: math.exp(self.means[cell][metric]) for metric in NOISY}

    def shuffled(self, seed: str) -> Measure:
        """Return what a search measures."""

        def measure(trial: Trial) -> Row | None:
            cell = trial.cell.cell_id
            if len(self.means[cell]) < len(NOISY):
                return None
            chance = random.Random(f"{seed} {trial.trial_id}")
            common_chance = random.Random(f"{seed} {trial.repetition}")
            values = {
                metric: math.exp(
                    self.means[cell][metric]
                    + common_chance.gauss(0, self.blocks[metric])
                    + chance.choice(self.residuals[metric])
                )
                for metric in NOISY
            }
            return self.first[cell] | values

        return measure


@dataclass(frozen=True)
class Case:
    """An application with what the full factorial shows about it."""

    application: Application
    experiment: ApplicationExperiment
    truth: Answer
    """With simulated trials, by the true means."""
    fit: Fit
    """Of the full factorial, whose intervals define ties."""
    fit_of_truth: Fit
    by_key: dict[tuple[Any, ...], Any]
    """Verdicts of the full factorial."""
    trials: int
    """Of the full factorial."""

    def judged(self, option: Option | None) -> tuple[bool, float | None]:
        """Return whether an answer is the best one or a tie, and the ratio of its score to that of the best."""
        best = self.truth.recommended
        if best is None or option is None:
            return False, None
        if option.key == best.option.key:
            return True, 1.0
        contrast = self.fit.contrast((option.key, best.option.key))
        true, truly_best = self.fit_of_truth.level(option.key), self.fit_of_truth.level(best.option.key)
        if contrast is None or contrast.error is None or true is None or truly_best is None:
            return False, None
        low, _ = contrast.interval()
        undistinguished = low is not None and true.log - truly_best.log <= contrast.log - math.log(low)
        return undistinguished and self.by_key[option.key].verdict != NOT_MET, math.exp(
            true.log - truly_best.log
        )


def rows_of(run: RunFolder) -> list[Row]:
    """Return the valid trials of all repetitions that are complete."""
    rows = tidy.best(tidy.rows(run))
    sizes = Counter(row["repetition"] for row in rows)
    return [row for row in rows if sizes[row["repetition"]] >= COMPLETE * max(sizes.values())]


def generated(base: Application, rows: Sequence[Row], count: int, seed: int) -> Iterator[Application]:
    """Yield applications of the recorded flows."""
    chance = random.Random(seed)
    for number in range(count):
        flows = chance.sample(base.flows, chance.choice((1, 1, 2, 2, 3)))
        limited = []
        for flow in flows:
            by_cell: dict[str, list[float]] = defaultdict(list)
            for row in rows:
                if row["payload_bytes"] == flow.payload_bytes and row["delay_p90_us"]:
                    by_cell[row["cell_id"]].append(row["delay_p90_us"])
            levels = sorted(statistics.geometric_mean(values) for values in by_cell.values())
            # From limits that few configurations meet to limits that all meet with a wide margin.
            limit = chance.choice((levels[len(levels) // 2], levels[-1] * 1.5, levels[-1] * 5))
            limited.append(flow.model_copy(update={"delay": [f"p90 <= {limit:.0f} us"]}))
        yield base.model_copy(
            update={
                "name": f"app-{number + 1}",
                "flows": limited,
                "optimize": chance.choice(("cpu", "cpu", "delay")),
            }
        )


def case_of(application: Application, source: Recorded | Simulated, repetitions: int) -> Case:
    """Return an application with the answer of the full factorial."""
    experiment = applications.experiment(application.model_copy(update={"repetitions": repetitions}))
    trials = expand(experiment).trials("lab")

    def answered(measure: Measure) -> tuple[Answer, Fit]:
        rows = [row for trial in trials if (row := record_of(trial, measure))]
        found = evidence.of_trials(experiment, rows, {}, "factorial")
        return answer(found), Fit(
            {option.key: scores(application, option.trials) for option in found.options}
        )

    factorial, fit = answered(source.shuffled("factorial"))
    truth, fit_of_truth = answered(source.exact) if isinstance(source, Simulated) else (factorial, fit)
    by_key = {each.option.key: each for each in factorial.ranked}
    return Case(application, experiment, truth, fit, fit_of_truth, by_key, len(trials))


def record_of(trial: Trial, measure: Measure) -> Row | None:
    """Return the trial with the values of a recorded one."""
    row = measure(trial)
    return labeled(trial, row) if row else None


def labeled(trial: Trial, row: Row) -> Row:
    """Return measured values as those of a trial."""
    return row | {"cell_id": trial.cell.cell_id, "trial_id": trial.trial_id, "repetition": trial.repetition}


def attempt(trial: Trial, row: Row | None) -> TrialRecord:
    """Return a record as the planner reads it."""
    base: dict[str, Any] = {
        "trial_id": trial.trial_id,
        "cell_id": trial.cell.cell_id,
        "repetition": trial.repetition,
        "testbed": "lab",
    }
    if row is None:
        base |= {"valid": False, "reason": "no valid trial was recorded"}
    else:
        base |= {"valid": True, **{name: row.get(name) for name in METRICS}}
    return TrialRecord.read(base)


def concluded(experiment: ApplicationExperiment, rows: Sequence[Row]) -> Option | None:
    """Return the configuration that `k8sdds recommend` would name."""
    found = answer(evidence.of_trials(experiment, rows, {}, "search")).recommended
    return found.option if found else None


def by_k8sdds(case: Case, measure: Measure, _: str, budget: int) -> tuple[Option | None, int]:
    """Search with the planner of `k8sdds recommend`."""
    experiment = case.experiment.model_copy(update={"search": Search(max_trials=budget)})
    plan = start.planner_of(expand(experiment))
    assert plan is not None
    attempts: list[TrialRecord] = []
    rows: list[Row] = []
    trials: Sequence[Trial] = expand(experiment).trials("lab")
    while trials:
        for trial in trials:
            row = record_of(trial, measure)
            attempts.append(attempt(trial, row))
            rows += [row] if row else []
        trials = plan.more(attempts)
    return concluded(experiment, rows), len(attempts)


def evaluated(case: Case, index: int, repetition: int, measure: Measure) -> list[Row]:
    """Return the trials of a configuration in one repetition."""
    candidate = candidates(case.experiment).measurable[index]
    found = []
    for cell in candidate.cells:
        trial = Trial(cell=cell, testbed="lab", repetition=repetition, duration_s=1, warmup_s=0)
        if row := record_of(trial, measure):
            found.append(row)
    return found


def by_factorial(case: Case, measure: Measure, _: str, __: int) -> tuple[Option | None, int]:
    """Measure everything again."""
    rows = [row for trial in expand(case.experiment).trials("lab") if (row := record_of(trial, measure))]
    return concluded(case.experiment, rows), len(rows)


def by_random(case: Case, measure: Measure, seed: str, budget: int) -> tuple[Option | None, int]:
    """Measure configurations at random, each twice."""
    chance = random.Random(f"random {seed}")
    known = candidates(case.experiment).measurable
    order = chance.sample(range(len(known)), len(known))
    cells: set[tuple[str, int]] = set()
    rows: list[Row] = []
    for index in order:
        wanted = {(cell, repetition) for cell in known[index].cell_ids for repetition in (0, 1)}
        if len(cells | wanted) > budget:
            break
        cells |= wanted
        rows += evaluated(case, index, 0, measure) + evaluated(case, index, 1, measure)
    return concluded(case.experiment, distinct(rows)), len(cells)


def distinct(rows: Sequence[Row]) -> list[Row]:
    """Return each trial once."""
    return list({row["trial_id"]: row for row in rows}.values())


def by_optuna(case: Case, measure: Measure, seed: str, budget: int) -> tuple[Option | None, int]:
    """Search with TPE; its answer is the evaluated configuration with the best mean that meets the constraints."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    known = candidates(case.experiment)
    axes = [
        name for name, _ in known.measurable[0].choices
        if len({str(dict(each.choices)[name]) for each in known.measurable}) > 1
    ]  # fmt: skip
    index_of = {
        tuple(str(dict(candidate.choices)[axis]) for axis in axes): index
        for index, candidate in enumerate(known.measurable)
    }
    values = {axis: sorted({key[number] for key in index_of}) for number, axis in enumerate(axes)}
    used: set[str] = set()
    results: dict[int, list[tuple[float, float]]] = defaultdict(list)
    limits = {flow.name: flow.requirements[1].limit for flow in case.application.flows}
    sampler = optuna.samplers.TPESampler(
        seed=random.Random(seed).randrange(2**31), constraints_func=lambda trial: (trial.user_attrs["beyond"],),
        n_startup_trials=max(5, budget // 5), multivariate=True, warn_independent_sampling=False,
    )  # fmt: skip
    study = optuna.create_study(direction="minimize", sampler=sampler)
    while True:
        asked = study.ask()
        key = tuple(asked.suggest_categorical(axis, values[axis]) for axis in axes)
        if key not in index_of:
            asked.set_user_attr("beyond", 1.0)
            study.tell(asked, 1e3)
            continue
        index = index_of[key]
        candidate = known.measurable[index]
        repetition = len(results[index])
        rows = evaluated(case, index, repetition, measure)
        new = {row["trial_id"] for row in rows} - used
        if len(used) + len(new) > budget or repetition > 50:
            break
        used |= new
        score, beyond = 1e3, 1.0
        if len(rows) == len(candidate.cells):
            by_flow = {
                flow.name: [row | {"block_key": repetition}]
                for flow, row in zip(case.application.flows, rows, strict=True)
            }
            score = next(iter(scores(case.application, by_flow).values()))
            beyond = max(math.log(own[0]["delay_p90_us"] / limits[name]) for name, own in by_flow.items())
        asked.set_user_attr("beyond", beyond)
        study.tell(asked, score)
        results[index].append((score, beyond))
    means = {
        index: (statistics.fmean(b for _, b in own) > 0, statistics.fmean(s for s, _ in own))
        for index, own in results.items()
        if own
    }
    best = min(means, key=means.__getitem__)
    choices = evidence._renamed(dict(known.measurable[best].choices))
    return Option(choices, {}), len(used)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="run folder of recommend.yaml")
    parser.add_argument("--applications", type=int, default=APPLICATIONS, help=f"number [{APPLICATIONS}]")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"searches of each application [{SEEDS}]")
    parser.add_argument("--share", type=float, default=SHARE, help=f"most trials of a search [{SHARE:g}]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the applications [1]")
    parser.add_argument(
        "--simulate", type=int, metavar="N", help="simulate trials; N repetitions define a tie"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    options = parser.parse_args()
    run = RunFolder.open(options.folder)
    own = evidence.own_application(run)
    if own is None:
        parser.error(f"{options.folder} did not measure an application")
    rows = rows_of(run)
    source = Simulated(rows) if options.simulate else Recorded(rows)
    repetitions = options.simulate or len({row["repetition"] for row in rows})
    if repetitions < 2:
        parser.error(
            f"{options.folder} has fewer than 2 repetitions with all configurations, as searches do: measure all with"
            " k8sdds run benchmarks/recommend.yaml, or simulate trials: --simulate 5"
        )
    methods: dict[str, Any] = {"k8sdds": by_k8sdds, "random": by_random}
    if options.simulate:
        methods["again"] = by_factorial
    try:
        import optuna  # noqa: F401

        methods["optuna"] = by_optuna
    except ImportError:
        common.progress("optuna is not installed: left out")
    results = measured(options, own.application, rows, source, repetitions, methods)
    facts = {
        "applications": options.applications, "seeds": options.seeds, "repetitions": repetitions,
        "configurations": len(candidates(own).measurable), "recorded_trials": len(rows),
        "simulated": bool(options.simulate),
    }  # fmt: skip
    if options.json:
        print(json.dumps(facts | {"methods": results}, indent=1))
        return
    print(", ".join(f"{name}: {value}" for name, value in facts.items()))
    for name, result in results.items():
        low, high = result["found_interval"]
        mean, largest = result["worse_mean_percent"], result["worse_max_percent"]
        worse = "unknown" if mean is None else f"{mean:.1f} % (at most {largest:.0f} %)"
        print(
            f"{name:8} found {result['found_percent']:.0f} % [{low:.0f}, {high:.0f}] of {result['searches']}, worse by"
            f" {worse}, trials {result['trials_percent']:.1f} % (at most {result['trials_max_percent']:.1f} %)"
        )


def measured(
    options: Any,
    base: Application,
    rows: Sequence[Row],
    source: Any,
    repetitions: int,
    methods: dict[str, Any],
) -> dict[str, Any]:
    """Return the results of each method."""
    outcomes: dict[str, list[tuple[bool, float | None, float]]] = defaultdict(list)
    for application in generated(base, rows, options.applications, options.seed):
        case = case_of(application, source, repetitions)
        budget = max(8, math.floor(options.share * case.trials))
        for seed in range(options.seeds):
            label = f"{application.name} {seed}"
            for name, method in methods.items():
                option, used = method(case, source.shuffled(label), label, budget)
                outcomes[name].append((*case.judged(option), used / case.trials))
        found = [sum(ok for ok, _, _ in own[-options.seeds :]) for own in outcomes.values()]
        common.progress(f"{application.name}: {dict(zip(outcomes, found, strict=True))} of {options.seeds}")
    return {name: summary(own) for name, own in outcomes.items()}


def summary(outcomes: Sequence[tuple[bool, float | None, float]]) -> dict[str, Any]:
    """Return the share of answers that are best or a tie, with its 95 % interval, and what they cost."""
    from scipy import stats

    found = sum(ok for ok, _, _ in outcomes)
    interval = stats.binomtest(found, len(outcomes)).proportion_ci(method="wilson")
    worse = [100 * (ratio - 1) for _, ratio, _ in outcomes if ratio is not None]
    used = [share for _, _, share in outcomes]
    return {
        "searches": len(outcomes), "found_percent": 100 * found / len(outcomes),
        "found_interval": [100 * interval.low, 100 * interval.high],
        "worse_mean_percent": statistics.fmean(worse) if worse else None,
        "worse_max_percent": max(worse, default=None),
        "trials_percent": 100 * statistics.fmean(used), "trials_max_percent": 100 * max(used),
    }  # fmt: skip


if __name__ == "__main__":
    main()
