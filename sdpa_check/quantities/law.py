"""The law of s = q·k beyond its moments: quantiles, distance to the normal law, tail."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache, lru_cache, partial
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from sdpa_check import estimates
from sdpa_check.distributions import component_law, law, parse_dependence
from sdpa_check.errors import InputError
from sdpa_check.measures.scores import tail_index
from sdpa_check.quantities.base import Case, Quantity, Sample, absolute, exact_law, relative
from sdpa_check.quantities.moments import mean, variance, without_moment
from sdpa_check.quantities.params import required
from sdpa_check.quantities.shares import share, share_band
from sdpa_check.records import Estimate, Prediction
from sdpa_check.theory import moments

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from sdpa_check.engine import Replicates
    from sdpa_check.measures.dot import DotWork
    from sdpa_check.records import Design
    from sdpa_check.theory.law import DotLaw


_JUMPS = "not available (a lattice law: a quantile is known to a bin only)"


def _quantiles(
    levels: Callable[[Case], tuple[float, ...]], weights: tuple[float, ...]
) -> Callable[[Case, tuple[Sample, ...]], Estimate]:
    def estimate(case: Case, samples: tuple[Sample, ...]) -> Estimate:
        (sample,) = samples
        work = cast("DotWork", sample.work)
        found = estimates.quantile_combination(
            sample.replicates.sums["histogram"],
            work.grid,
            levels(case),
            weights,
            samples=int(sample.replicates.sums["tile"].sum()),
        )
        if _lattice(case.design):
            return estimates.bare(found.value, found.blocks, found.samples, _JUMPS)
        shift = work.pivot * sum(weights)
        if shift == 0 or found.se is None:
            return found
        return estimates.with_error(found.value + shift, found.se, found.blocks, found.samples)

    return estimate


def _level(case: Case) -> tuple[float, ...]:
    if case.level is None or not 0 < case.level < 1:
        raise InputError("level", case.level, "a number between 0 and 1")
    return (case.level,)


def _exact_law(value: Callable[[DotLaw, Case], float], what: str) -> Callable[[Case], Prediction]:
    def predict(case: Case) -> Prediction:
        design = case.design
        if _lattice(design):
            source = "a lattice law: its quantiles jump from one lattice point to the next"
            return Prediction(value=None, kind="none", source=source)
        try:
            law_ = exact_law(design)
        except InputError as error:
            return _without_law(error)
        source = f"{what} of the exact law of q·k (inversion of its characteristic function)"
        return Prediction(value=value(law_, case), kind="exact", source=source)

    return predict


def _without_law(error: InputError) -> Prediction:
    source = f"an exact law needs {error.where} {error.want}"
    return Prediction(value=None, kind="none", source=source)


def _lattice(design: Design) -> bool:
    return {design.query.distribution, design.key.distribution} == {"rademacher"}


def _iqr_band(case: Case, prediction: Prediction, tolerance: float) -> float:
    """A quantile is held to `tolerance` interquartile ranges; without an exact law, to nothing."""
    if prediction.value is None:
        return 0.0
    return tolerance * exact_law(case.design).iqr()


def _variance_growth(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    """Slope of E[ln S²_n] on ln n over n = N/16, N/4, N independent dot products, N a block's."""
    del case
    (sample,) = samples
    side, groups = cast("DotWork", sample.work).tiling
    vectors = side * groups
    small = "blocks of fewer than 64 queries show no growth: more samples"
    return estimates.function_of_means(
        sample.replicates,
        lambda m: (m["growth"][:, 2] - m["growth"][:, 0]) / (m["growth"][:, 3] * math.log(16)),
        samples=sample.replicates.blocks * vectors,
        withheld=small if vectors < 64 else "",
    )


def _growth_limit(case: Case) -> Prediction:
    nu = tail_index(case.design)
    if nu > 2:
        return Prediction(value=0.0, kind="limit", source="finite variance: S²_n settles")
    source = f"S²_n grows as n^(2/ν−1), ν = {nu:g}"
    if _logarithm(case.design):
        source = f"S²_n grows as n^(2/ν−1) (ln n)^(2/ν), ν = {nu:g}: without the logarithm"
    return Prediction(value=2 / nu - 1, kind="limit", source=source)


def _logarithm(design: Design) -> bool:
    """Whether ln z stands beside the power in the tail of s: two factors of one index do that."""
    independent = not parse_dependence(design.corr).qk_rho
    return independent and law(design.query).tail_index == law(design.key).tail_index


def _hill(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    """Hill's estimate 1/mean(ln(|s|/u)) over |s| > u, u the quantile of |s| at the case's level.

    What lies in the last bin, which is open, is known to be beyond its edge w only: it counts with
    ln(w/u) in the sum and not in the number, as the likelihood of censored data has it.
    """
    (sample,) = samples
    grid = cast("DotWork", sample.work).grid
    edges = grid.edges()[grid.magnitudes :]
    middles = np.log(np.sqrt(edges[1:-1] * edges[2:]))
    middles[-1] = math.log(edges[-2])

    def of_sizes(histogram: NDArray[Any]) -> NDArray[Any]:
        """Counts of |s|: the mirrored halves of the signed grid, folded."""
        half = grid.magnitudes
        return np.asarray(histogram[:, half:] + histogram[:, :half][:, ::-1])[:, 1:]

    pooled = of_sizes(sample.replicates.sums["histogram"].sum(axis=0, keepdims=True))[0]
    above = np.cumsum(pooled[::-1])[::-1]
    wanted = (1 - _tail_level(case)) * sample.replicates.sums["histogram"].sum()
    start = int(np.argmax(above <= wanted))

    def hill(m: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        tail = of_sizes(m["histogram"])[:, start:]
        excess = tail @ (middles[start:] - math.log(edges[1 + start]))
        return np.asarray(tail[:, :-1].sum(axis=1) / excess)

    if above[-2] > wanted:  # nothing but the last bin lies beyond u
        return estimates.bare(math.nan, sample.replicates.count, int(above[-1]), estimates.BEYOND)
    return estimates.function_of_means(sample.replicates, hill, samples=int(above[start]))


def _tail_level(case: Case) -> float:
    return 0.999 if case.level is None else _level(case)[0]


def _tail_limit(case: Case) -> Prediction:
    nu = tail_index(case.design)
    tail = f"|s| beyond its {100 * _tail_level(case):g} % point"
    if math.isinf(nu):
        return Prediction(value=None, kind="infinite", source=f"all moments exist; {tail}")
    source = f"P(|s| > z) ~ z^−ν; Hill's estimate on {tail} is not there yet"
    if _logarithm(case.design):
        source = f"P(|s| > z) ~ z^−ν ln z, so Hill's estimate on {tail} lies below ν"
    return Prediction(value=nu, kind="limit", source=source)


def _normal_distance(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    """|F(z) − Φ((z − mean)/std)| at the z where it is largest, mean and std measured as well.

    The z is looked for on one half of the replicates and the gap taken on the other, and the other
    way round: on the half that chose it, the largest of many noisy gaps is too large. Where a
    measured std has no error bar and the exact one is known, that is used: the gap is then a
    share, which has one.
    """
    (sample,) = samples
    edges, std = cast("DotWork", sample.work).grid.edges(), _exact_std(case.design)
    half = sample.replicates.count // 2
    halves = [_part(sample, slice(0, half)), _part(sample, slice(half, None))]
    withheld = "" if std is not None else without_moment(4, case.design)
    found = []
    for chooser, judge in (halves, halves[::-1]):
        index, sign = _widest_gap(chooser, edges, std)
        gap = partial(_gap, edge=edges[index], index=index, std=std)
        found.append(
            estimates.function_of_means(
                judge,
                lambda m, gap=gap, sign=sign: sign * gap(m),  # type: ignore[misc]
                samples=int(judge.sums["tile"].sum()),
                withheld=withheld,
            )
        )
    return estimates.combined(found, (0.5, 0.5))


def _part(sample: Sample, part: slice) -> Replicates:
    """Some of the replicates."""
    sums = {name: value[part] for name, value in sample.replicates.sums.items()}
    return replace(sample.replicates, sums=sums)


def _gap(
    m: Mapping[str, NDArray[Any]], *, edge: float, index: int, std: float | None
) -> NDArray[Any]:
    """The share of the sample below edge number `index`, less that of the normal law."""
    below = m["histogram"][:, :index].sum(axis=1) / m["histogram"].sum(axis=1)
    z = np.broadcast_to(_standardised(edge, m, std), below.shape)
    return np.asarray(below - [NormalDist().cdf(float(x)) for x in z])


def _standardised(z: Any, m: Mapping[str, NDArray[Any]], std: float | None) -> NDArray[Any]:
    if std is not None:
        return np.asarray(z / std)
    return np.asarray((z - mean(m)) / np.sqrt(variance(m)))


def _widest_gap(
    replicates: Replicates, edges: NDArray[np.float64], std: float | None
) -> tuple[int, float]:
    """The number of the edge where the sample is furthest from normal, and on which side."""
    names = ("pairs", "power1", "power2", "histogram")
    pooled = {name: replicates.sums[name].mean(axis=0) for name in names}
    cdf = np.cumsum(pooled["histogram"])[:-1] / pooled["histogram"].sum()
    normal = np.interp(_standardised(edges[1:-1], pooled, std), *_normal_table())
    best = int(np.argmax(np.abs(cdf - normal)))
    return best + 1, math.copysign(1.0, cdf[best] - normal[best])


@cache
def _normal_table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points z and Φ(z), close enough together for finding where a gap is widest."""
    z = np.linspace(-8, 8, 4001)
    return z, np.array([NormalDist().cdf(each) for each in z.tolist()])


def _exact_std(design: Design) -> float | None:
    """√(d v_q v_k) for 2 < ν ≤ 4, independent components and zero means."""
    q, k = component_law(design.query), component_law(design.key)
    centred = q.mean == k.mean == 0 and parse_dependence(design.corr).kind == "none"
    if not (2 < tail_index(design) <= 4 and centred):
        return None
    return math.sqrt(design.dk * q.variance * k.variance)


@lru_cache(maxsize=256)
def _distance(design: Design) -> float:
    return exact_law(design).normal_distance()


def _predict_normal_distance(case: Case) -> Prediction:
    std = moments.dot_std(case.design)
    if std.value is None:
        return Prediction(value=None, kind="none", source="no variance to standardise by")
    try:
        distance = _distance(case.design)
    except InputError as error:
        return _without_law(error)
    source = "sup |F − Φ| of the exact law of q·k"
    return Prediction(value=distance, kind="exact", source=source)


def _exceedance(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    """Share of |c·s| > threshold, for the c that was applied."""
    (sample,) = samples
    work, bound = cast("DotWork", sample.work), _threshold(case) / abs(sample.multiplier)
    side, groups = work.tiling
    return share(
        sample.replicates,
        "histogram",
        work.grid,
        {bound - work.pivot: 1.0, -bound - work.pivot: -1.0},
        base=1.0,
        samples=int(sample.replicates.sums["tile"].sum()),
        independent=side * groups,
        design=case.design,
    )


def _tails(law_: DotLaw, case: Case) -> float:
    bound = _threshold(case) / abs(case.multiplier)
    return float(law_.survival(bound) + law_.cdf(-bound))


def _threshold(case: Case) -> float:
    return float(required(case.inputs, "threshold"))


_dot_iqr = _quantiles(lambda _: (0.25, 0.75), (-1.0, 1.0))
predict_iqr = _exact_law(lambda law_, _: law_.iqr(), "interquartile range")


def _logit_iqr(case: Case, samples: tuple[Sample, ...]) -> Estimate:
    return estimates.scaled(_dot_iqr(case, samples), abs(samples[0].multiplier))


def _predict_logit_iqr(case: Case) -> Prediction:
    found = predict_iqr(case)
    if found.value is None:
        return found
    value = abs(case.multiplier) * found.value
    return Prediction(value=value, kind=found.kind, source=f"{found.source}, times |c|")


QUANTITIES = (
    Quantity(
        name="dot.iqr",
        formula="Q(¾) − Q(¼), Q the quantiles of s",
        unit="1",
        sampling="dot",
        parts=("histogram",),
        estimate=_dot_iqr,
        predict=predict_iqr,
        band=relative,
    ),
    Quantity(
        name="logit.iqr",
        formula="interquartile range of x = c·s",
        unit="1",
        sampling="dot",
        parts=("histogram",),
        params=("scale",),
        estimate=_logit_iqr,
        predict=_predict_logit_iqr,
        band=relative,
    ),
    Quantity(
        name="dot.quantile",
        formula="Q(level), the quantile of s",
        unit="1",
        sampling="dot",
        parts=("histogram",),
        params=("level",),
        estimate=_quantiles(_level, (1.0,)),
        predict=_exact_law(lambda law_, case: law_.quantile(_level(case)[0]), "quantile"),
        band=_iqr_band,
    ),
    Quantity(
        name="dot.exceedance",
        formula="P(|s| > threshold)",
        unit="1",
        sampling="dot",
        parts=("histogram",),
        params=("threshold",),
        estimate=_exceedance,
        predict=_exact_law(_tails, "both tails"),
        band=share_band,
    ),
    Quantity(
        name="logit.exceedance",
        formula="P(|x| > threshold), x = c·s",
        unit="1",
        sampling="dot",
        parts=("histogram",),
        params=("scale", "threshold"),
        estimate=_exceedance,
        predict=_exact_law(_tails, "both tails"),
        band=share_band,
    ),
    Quantity(
        name="dot.normal_distance",
        formula="sup_z |P(s ≤ E s + z·std) − Φ(z)|",
        unit="1",
        sampling="dot",
        parts=("powers", "histogram"),
        estimate=_normal_distance,
        predict=_predict_normal_distance,
        band=absolute(0.5),
        lead=False,
    ),
    Quantity(
        name="dot.tail_index",
        formula="Hill's estimate of ν, P(|s| > z) ~ z^−ν, beyond the level's quantile of |s|",
        unit="1",
        sampling="dot",
        parts=("histogram",),
        params=("level",),
        estimate=_hill,
        predict=_tail_limit,
        band=relative,
        lead=False,
    ),
    Quantity(
        name="dot.variance_growth",
        formula="slope of E[ln S²_n] on ln n, S²_n the mean square of n dot products",
        unit="1",
        sampling="dot",
        parts=("powers", "growth"),  # blocks of the former have more pairs that share nothing
        estimate=_variance_growth,
        predict=_growth_limit,
        band=absolute(1.0),
        lead=False,
    ),
)
