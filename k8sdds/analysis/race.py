"""Search for the best of many configurations with few trials: a race on paired blocks.

Each round is a block: it measures some configurations once, close in time, so that they are compared in pairs. The
first round spreads over all choices. Each later round has half as many (successive halving: Karnin, Koren, Somekh, ICML
2013), down to a smallest size: the leader, and the configurations that are most likely to be better and to meet all
requirements. What was not measured is predicted by a Gaussian process over the choices (Rasmussen, Williams, Gaussian
Processes for Machine Learning, 2006) with effects of single choices, of pairs of choices, and of the configuration
itself. The expected improvement (Jones, Schonlau, Welch, J. Global Optimization 13, 1998), weighted with the
probability that all requirements are met, ranks the configurations.

The prediction only selects what to measure. What is stated in the end rests on paired tests of measured
configurations: the best one is wrongly distinguished from the recommended one with at most the stated probability in
total, because each test is one-sided at that probability divided by the number of other configurations and rounds
(subset selection: Gupta, Technometrics 7(2), 1965, with Bonferroni's inequality instead of joint quantiles).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from k8sdds.analysis.selection import Scores

FIRST_SHARE = 0.4
"""Share of all trials that the first round has."""
LAST_SHARE = 0.1
"""Smallest share of all trials that a round has."""
_SHARES = (0.55, 0.3, 0.15)
"""Prior variance of single choices, of pairs of choices, and of single configurations."""
_FAILED = math.log(10)
"""Violation of a configuration that could not be measured."""


@dataclass(frozen=True)
class Measured:
    """What is known of a configuration."""

    scores: Scores = field(default_factory=dict)
    """By block; lower is better."""
    violations: Scores = field(default_factory=dict)
    """By block, above 0 beyond a limit."""
    excluded: bool = False
    """Whether it fails a requirement for certain."""
    failed: bool = False
    """Whether it has no valid trial after all attempts, or one in which no sample arrived."""


def round_target(number: int, max_trials: int) -> int:
    """Return how many trials a round has."""
    return math.ceil(max_trials * max(FIRST_SHARE * 0.5**number, LAST_SHARE))


def rounds(max_trials: int) -> int:
    """Return how many rounds a search has if each has its target."""
    targets = itertools.accumulate(round_target(number, max_trials) for number in itertools.count())
    return 1 + sum(1 for _ in itertools.takewhile(lambda trials: trials < max_trials, targets))


def first_round(designs: Sequence[Sequence[str]]) -> Iterator[int]:
    """Yield the configurations in the order in which they reduce the uncertainty about all of them most.

    Each takes time and memory in proportion to the number of configurations and of those before it. `designs` has the
    value of each choice, for each configuration.
    """
    import numpy as np

    codes = _codes(designs)
    weights, everything = np.ones(codes.shape[1]), np.arange(len(designs))
    variance, rows = np.ones(len(designs)), np.zeros((16, len(designs)))
    left = np.ones(len(designs), dtype=bool)
    for number in range(len(designs)):
        # Almost equal variances must not depend on the rounding of a machine.
        pick = int(np.argmax(np.round(np.where(left, variance, -1.0), 9)))
        yield pick
        left[pick] = False
        if number == len(rows):
            rows = np.vstack([rows, np.zeros_like(rows)])
        before = rows[:number]
        prior = _kernel(codes, weights, np.array([pick]), everything)[0]
        rows[number] = (prior - before[:, pick] @ before) / math.sqrt(max(variance[pick], 1e-9) + 0.05)
        variance = np.maximum(variance - rows[number] ** 2, 0.0)


def next_round(designs: Sequence[Sequence[str]], measured: Sequence[Measured]) -> tuple[list[int], float]:
    """Return the configurations that a further round may measure: the leader, then the most promising ones.

    The second result is what the most promising one is expected to be better by, as a logarithm.
    """
    import numpy as np

    state = _State(designs, measured)
    possible = np.array([bool(each.scores) for each in measured]) & ~state.out
    if not possible.any():
        possible = np.ones(len(measured), dtype=bool)
    leader = int(np.argmax(np.where(possible, state.balance, -np.inf)))
    mean, spread, out = state.score.mean, state.score.spread, state.out
    better = (mean[leader] - mean) / spread
    improvement = spread * (better * _normal(better) + np.exp(-(better**2) / 2) / math.sqrt(2 * math.pi))
    promise = state.weight * improvement
    order = [
        int(index) for index in np.argsort(-promise, kind="stable") if index != leader and not out[index]
    ]
    return [leader, *order], float(promise[order[0]]) if order else 0.0


def fill(
    order: Iterable[int], cells_of: Callable[[int], Sequence[str]], target: int, least: int = 2
) -> list[int]:
    """Return the first configurations of an order whose different cells are at most `target`, but at least `least`."""
    chosen: list[int] = []
    cells: set[str] = set()
    for index in order:
        added = cells | set(cells_of(index))
        if len(added) > target and len(chosen) >= least:
            continue
        chosen.append(index)
        cells = added
        if len(cells) >= target and len(chosen) >= least:
            break
    return chosen


def standings(designs: Sequence[Sequence[str]], measured: Sequence[Measured]) -> list[Standing]:
    """Return the prediction for each configuration from all trials."""
    state = _State(designs, measured)
    return [
        Standing(float(mean), float(balance))
        for mean, balance in zip(state.score.mean, state.balance, strict=True)
    ]


@dataclass(frozen=True)
class Standing:
    """What is predicted of a configuration: its few trials count less, the more those of similar ones differ."""

    score: float
    balance: float
    """Balance of score and probability to meet all requirements; higher is better."""


class _State:
    """What is predicted of all configurations.

    `weight` is the probability to meet all requirements, relative to the most promising one, because noise can make all
    look as if they were beyond a limit. In `balance`, a standard deviation of the scores of all configurations counts
    as much as a factor e of the probability.
    """

    def __init__(self, designs: Sequence[Sequence[str]], measured: Sequence[Measured]) -> None:
        import numpy as np

        codes = _codes(designs)
        self.score = _Prediction(codes, [each.scores for each in measured])
        beyond = [{"failed": _FAILED} if each.failed else each.violations for each in measured]
        violation = _Prediction(codes, beyond, center=False)
        self.out = np.array([each.excluded or each.failed for each in measured])
        feasible = np.where(self.out, 0.0, _normal(-violation.mean / violation.spread))
        self.weight = feasible / max(float(feasible.max()), 1e-9)
        scale = max(float(self.score.mean.std()), 1e-9)
        self.balance = np.log(np.maximum(self.weight, 1e-9)) - self.score.mean / scale


class _Prediction:
    """Mean and spread of a quantity of all configurations, by a Gaussian process with an effect of each block."""

    def __init__(self, codes: Any, values: Sequence[Scores], center: bool = True) -> None:
        import numpy as np

        entries = [(index, block, value) for index, own in enumerate(values) for block, value in own.items()]
        self.mean, self.spread = np.zeros(len(codes)), np.ones(len(codes))
        if not entries:
            return
        self._at = np.array([index for index, _, _ in entries])
        blocks = [block for _, block, _ in entries]
        self._same_block = np.array([[float(one == other) for other in blocks] for one in blocks])
        targets = np.array([value for _, _, value in entries])
        offset = float(targets.mean()) if center else 0.0
        self._targets = targets - offset
        self._codes = codes
        weights, noise, block = self._fitted(codes.shape[1])
        factor, whitened, scale = self._factor(self._observed(weights), noise, block)
        # Of all pairs of configurations, only those with a measured one are needed.
        across = _kernel(codes, weights, self._at, np.arange(len(codes)))
        solved = np.linalg.solve(factor, across)
        self.mean = offset + solved.T @ whitened
        variance = np.maximum(1.0 - (solved**2).sum(axis=0), 1e-12)
        self.spread = np.sqrt(variance * scale)

    def _observed(self, weights: Any) -> Any:
        return _kernel(self._codes, weights, self._at, self._at)

    def _factor(self, kernel: Any, noise: float, block: float) -> tuple[Any, Any, float]:
        """Return the Cholesky factor of the observations' covariance, the whitened values, and the scale of variances.

        The whitened values are the factor's inverse times the values.
        """
        import numpy as np

        count = len(self._at)
        factor = np.linalg.cholesky(kernel + block * self._same_block + noise * np.eye(count))
        whitened = np.linalg.solve(factor, self._targets)
        # A prior of one observation keeps the scale above 0 if all values are equal.
        return factor, whitened, float((whitened @ whitened + 1e-4) / (count + 1))

    def _likelihood(self, kernel: Any, noise: float, block: float) -> float:
        import numpy as np

        factor, _, scale = self._factor(kernel, noise, block)
        return float(-len(self._at) / 2 * math.log(scale) - np.log(factor.diagonal()).sum())

    def _fitted(self, axes: int) -> tuple[Any, float, float]:
        """Return weights of the choices, and variances of noise and blocks, which make the values most likely."""
        import numpy as np

        weights = np.ones(axes)
        kernel = self._observed(weights)
        choices = [
            (noise, block) for noise in (0.003, 0.01, 0.03, 0.1, 0.3, 1.0) for block in (0.003, 0.03, 0.3)
        ]
        noise, block = max(choices, key=lambda choice: self._likelihood(kernel, *choice))
        best = self._likelihood(kernel, noise, block)
        for axis in range(axes):
            for factor in (0.1, 4.0):
                changed = weights.copy()
                changed[axis] *= factor
                likelihood = self._likelihood(self._observed(changed), noise, block)
                if likelihood > best + 0.1:
                    weights, best = changed, likelihood
        kernel = self._observed(weights)
        noise, block = max(choices, key=lambda choice: self._likelihood(kernel, *choice))
        return weights, noise, block


def _normal(values: Any) -> Any:
    import numpy as np

    return np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in values])


def _codes(designs: Sequence[Sequence[str]]) -> Any:
    """Return the designs as numbers: one column for each choice that varies, at least one."""
    import numpy as np

    columns = [column for column in zip(*designs, strict=True) if len(set(column)) > 1]
    columns = columns or [tuple(map(str, range(len(designs))))]
    return np.column_stack([np.unique(column, return_inverse=True)[1] for column in columns])


def _kernel(codes: Any, weights: Any, rows: Any, columns: Any) -> Any:
    """Return the prior covariance of some configurations with others, by index; that of each with itself is 1."""
    import numpy as np

    weights = weights[: codes.shape[1]] / weights[: codes.shape[1]].sum()
    single, squares = np.zeros((2, len(rows), len(columns)))
    for axis, weight in enumerate(weights):
        same = codes[rows, axis][:, None] == codes[columns, axis][None, :]
        single[same] += weight
        squares[same] += weight**2
    most = 1 - float((weights**2).sum())
    pairs = (single**2 - squares) / most if most > 1e-9 else single
    return _SHARES[0] * single + _SHARES[1] * pairs + _SHARES[2] * (rows[:, None] == columns[None, :])
