"""The gate's statistics against scipy and statsmodels, on 1,000 random cases each."""

from __future__ import annotations

import gc
import itertools
import math

import numpy as np
import pytest
from scipy import stats as reference
from statsmodels.stats.multitest import multipletests

from gate import stats

CASES = 1000


def test_the_exact_signed_rank_p_equals_scipy() -> None:
    """Without ties and zeros scipy counts the same distribution."""
    draw = np.random.default_rng(1)
    for _ in range(CASES):
        data = draw.normal(draw.uniform(-1, 1), 1, draw.integers(2, 25))
        assert stats.wilcoxon(list(data)) == pytest.approx(reference.wilcoxon(data, method="exact").pvalue, rel=1e-9)


def test_ties_and_zeros_equal_the_count_over_every_sign_pattern() -> None:
    draw = np.random.default_rng(2)
    for _ in range(CASES):
        data = draw.integers(-3, 4, draw.integers(1, 9)).astype(float)
        left = data[data != 0]
        if len(left) == 0:
            assert stats.wilcoxon(list(data)) == 1.0
            continue
        ranks = reference.rankdata(np.abs(left))
        seen = ranks[left > 0].sum()
        sums = [
            sum(r for r, up in zip(ranks, signs, strict=True) if up)
            for signs in itertools.product((0, 1), repeat=len(ranks))
        ]
        below, above = np.mean(np.asarray(sums) <= seen + 1e-9), np.mean(np.asarray(sums) >= seen - 1e-9)
        assert stats.wilcoxon(list(data)) == pytest.approx(min(1.0, 2 * min(below, above)))


def test_the_smallest_p_is_what_the_number_of_pairs_allows() -> None:
    """16 pairs reach 3.1e-5, 8 pairs 0.0078."""
    assert stats.wilcoxon([1.0 + i for i in range(16)]) == pytest.approx(2 / 2**16)
    assert stats.wilcoxon([-1.0 - i for i in range(8)]) == pytest.approx(2 / 2**8)


def test_holm_equals_statsmodels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "collect", lambda: 0)  # statsmodels collects garbage in every call: 0.1 s each
    draw = np.random.default_rng(3)
    for _ in range(CASES):
        values = draw.uniform(0, 0.2, draw.integers(1, 12))
        assert stats.holm(list(values)) == pytest.approx(list(multipletests(values, method="holm")[1]))


def test_percentiles_spread_and_geometric_mean_equal_scipy_and_numpy() -> None:
    draw = np.random.default_rng(4)
    for _ in range(CASES):
        data = draw.lognormal(3, 0.4, draw.integers(2, 40))
        share = draw.uniform(0, 100)
        assert stats.percentile(list(data), share) == pytest.approx(reference.scoreatpercentile(data, share))
        assert stats.spread(list(data)) == pytest.approx(reference.variation(data, ddof=1))
        assert stats.geometric_mean(list(data)) == pytest.approx(reference.gmean(data))


def test_outliers_equal_the_modified_z_by_scipys_mad() -> None:
    draw = np.random.default_rng(5)
    for _ in range(CASES):
        data = draw.standard_t(2, draw.integers(3, 30))
        mad = reference.median_abs_deviation(data)
        expected = np.flatnonzero(np.abs(0.6745 * (data - np.median(data)) / mad) > 3.5)
        assert stats.outliers(list(data)) == list(expected)


def test_the_trend_equals_scipy() -> None:
    draw = np.random.default_rng(6)
    for _ in range(CASES):
        data = draw.normal(10, 1, draw.integers(4, 30)) + draw.uniform(-0.2, 0.2) * np.arange(1)
        found = stats.trend(list(data))
        assert found.slope == pytest.approx(reference.theilslopes(data).slope)
        assert found.p == pytest.approx(reference.kendalltau(np.arange(len(data)), data).pvalue)


def test_the_bootstrap_interval_is_scipys_within_its_own_noise() -> None:
    """Both draw; with 2,000 resamples a bound is known to about a twentieth of the interval's width."""
    draw = np.random.default_rng(7)
    off = []
    for _ in range(CASES):
        data = draw.lognormal(2, 0.3, 12)
        low, high = stats.interval(list(data))
        other = reference.bootstrap(
            (data,), np.mean, n_resamples=2000, method="percentile", rng=np.random.default_rng(8), vectorized=True
        ).confidence_interval
        width = other.high - other.low
        off += [abs(low - other.low) / width, abs(high - other.high) / width]
    assert np.mean(off) < 0.02
    assert np.max(off) < 0.12


def test_the_weighted_interval_is_of_a_ratio_of_sums() -> None:
    """Tokens over seconds: equal seconds make it the mean interval divided by them."""
    data = [float(value) for value in np.random.default_rng(9).integers(200, 600, 16)]
    low, high = stats.interval(data)
    assert stats.interval(data, [4.0] * 16) == pytest.approx((low / 4, high / 4))


def test_nothing_breaks_on_nothing() -> None:
    assert math.isnan(stats.median([]))
    assert stats.spread([1.0]) == 0.0
    assert stats.interval([5.0]) == (5.0, 5.0)
    assert stats.interval([5.0], [2.0]) == (2.5, 2.5)
    assert stats.wilcoxon([]) == 1.0
    assert stats.describe([]) == {"n": 0}
    assert stats.trend([1.0, 1.0, 1.0, 1.0]).p == 1.0


def test_too_few_pairs_detect_nothing() -> None:
    """Seven pairs over six classes can never be significant: 6 x 2/2^7 is above 5 %."""
    assert stats.detects(0.05, 7, 6) == math.inf
    assert math.isfinite(stats.detects(0.05, 8, 6))


def test_detects_grows_with_spread_and_falls_with_runs() -> None:
    assert stats.detects(0.02, 16, 6) < stats.detects(0.04, 16, 6)
    assert stats.detects(0.02, 32, 6) < stats.detects(0.02, 16, 6)
    assert stats.detects(0.0, 16, 6) == 0.0
