"""The statistics of the gate, checked against scipy and statsmodels in tests/gate/unit/test_stats.py.

Rates are compared as logarithms of ratios, because a 2 % gain and a 2 % loss should cancel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.05
POWER = 0.8
RESAMPLES = 2000
Floats = NDArray[np.float64]


def percentile(values: Sequence[float], share: float) -> float:
    """Linear between the order statistics; `share` from 0 to 100. nan for no values."""
    return float(np.percentile(np.asarray(values, float), share)) if len(values) else math.nan


def median(values: Sequence[float]) -> float:
    """The middle; nan for no values."""
    return percentile(values, 50)


def spread(values: Sequence[float]) -> float:
    """Coefficient of variation: sample standard deviation over mean; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    return float(np.std(values, ddof=1) / np.mean(values))


def interval(values: Sequence[float], weights: Sequence[float] | None = None, seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap of the mean, or of sum(values)/sum(weights) where weights are given."""
    data = np.asarray(values, float)
    if len(data) < 2:
        only = float(data[0]) if len(data) else math.nan
        if len(data) and weights is not None:
            only /= weights[0]
        return only, only
    picks = np.random.default_rng(seed).integers(0, len(data), (RESAMPLES, len(data)))
    found = data[picks].sum(axis=1)
    found = found / (np.asarray(weights, float)[picks].sum(axis=1) if weights is not None else len(data))
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def outliers(values: Sequence[float]) -> list[int]:
    """Places whose modified z = 0.6745 (x - median) / MAD is beyond 3.5; none when the MAD is 0."""
    data = np.asarray(values, float)
    if len(data) < 3:
        return []
    centre = np.median(data)
    mad = np.median(np.abs(data - centre))
    if mad == 0:
        return []
    return [int(place) for place in np.flatnonzero(np.abs(0.6745 * (data - centre) / mad) > 3.5)]


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm; nan for no values."""
    return float(np.exp(np.mean(np.log(np.asarray(values, float))))) if len(values) else math.nan


def wilcoxon(differences: Sequence[float]) -> float:
    """Two-sided exact p of the signed-rank test.

    Zeros are dropped, ties share the mean rank, and the distribution over all sign patterns is counted exactly (ranks
    are doubled so that half ranks are whole numbers). 1.0 when nothing is left.
    """
    from scipy.stats import rankdata  # scipy takes a second to import, and most commands need none of it

    data = np.asarray([value for value in differences if value != 0], float)
    if len(data) == 0:
        return 1.0
    ranks = np.rint(2 * rankdata(np.abs(data))).astype(int)
    total = int(ranks.sum())
    ways = np.zeros(total + 1)
    ways[0] = 1.0
    for rank in ranks:
        shifted = np.zeros_like(ways)
        shifted[rank:] = ways[: total + 1 - rank]
        ways = (ways + shifted) / 2  # kept as probabilities
    positive = int(ranks[data > 0].sum())
    tail = min(float(ways[: positive + 1].sum()), float(ways[positive:].sum()))
    return min(1.0, 2 * tail)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p, in the order given."""
    adjusted = [0.0] * len(values)
    running = 0.0
    for place, index in enumerate(sorted(range(len(values)), key=lambda index: values[index])):
        running = max(running, min(1.0, (len(values) - place) * values[index]))
        adjusted[index] = running
    return adjusted


@dataclass(frozen=True)
class Trend:
    """Theil-Sen slope per step, its Kendall p, and the change over the whole series as a share of its median."""

    slope: float
    p: float
    change: float


def trend(values: Sequence[float]) -> Trend:
    """Does a series drift? A constant one has p 1."""
    from scipy.stats import kendalltau, theilslopes

    data = np.asarray(values, float)
    if len(data) < 4 or np.ptp(data) == 0:
        return Trend(0.0, 1.0, 0.0)
    steps = np.arange(len(data))
    slope = float(theilslopes(data, steps).slope)
    p = float(kendalltau(steps, data).pvalue)
    return Trend(slope, p, slope * (len(data) - 1) / float(np.median(data)))


@lru_cache(maxsize=64)
def _shift(pairs: int, tests: int) -> float:
    """The shift, in standard deviations of one log ratio, that the exact test finds with POWER at ALPHA / tests.

    Found by drawing: 4000 normal samples of `pairs`, the same for every call. inf when no sample of this size can be
    significant: the smallest p there is, 2 / 2^pairs, is above the level.
    """
    level = ALPHA / tests
    if 2 / 2**pairs > level:
        return math.inf
    noise = np.random.default_rng(0).standard_normal((4000, pairs))
    ranks = np.arange(1, pairs + 1)
    ways = np.zeros(int(ranks.sum()) + 1)
    ways[0] = 1.0
    for rank in ranks:
        shifted = np.zeros_like(ways)
        shifted[rank:] = ways[: len(ways) - rank]
        ways = (ways + shifted) / 2
    tails = np.cumsum(ways)  # P(W <= w)
    critical = int(np.flatnonzero(2 * tails <= level)[-1])  # largest rank sum of one sign that is still significant

    def power(shift: float) -> float:
        data = noise + shift
        order = np.argsort(np.argsort(np.abs(data), axis=1), axis=1) + 1
        negative = np.where(data < 0, order, 0).sum(axis=1)
        return float(np.mean(negative <= critical))

    low, high = 0.0, 20.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if power(middle) < POWER else (low, middle)
    return high


def detects(cv: float, pairs: int, tests: int = 1) -> float:
    """The smallest difference of rates that `compare` finds with 80 % power, as a share (0.02 = 2 %).

    For the exact signed-rank test at 5 %, divided by the number of workloads tested (the worst case of Holm). `cv` is
    the spread of one setup's runs; two setups' noise adds up, hence sqrt(2). Spread between prompts, which pairing
    removes, is in `cv` too, so this is on the safe side. inf = this many pairs can show nothing.
    """
    return math.expm1(_shift(pairs, tests) * math.sqrt(2) * cv) if cv > 0 or pairs < 6 else 0.0


def describe(values: Sequence[float]) -> dict[str, Any]:
    """median, p5, p95, max and n of a list, rounded for people."""
    if not values:
        return {"n": 0}
    return {
        "n": len(values),
        "median": round(median(values), 6),
        "p5": round(percentile(values, 5), 6),
        "p95": round(percentile(values, 95), 6),
        "max": round(max(values), 6),
    }
