"""Hand-made runs: every verdict; a sweep over d_k; numbers that are measured only."""

from __future__ import annotations

import dataclasses

import pytest

from sdpa_check.records import (
    ClaimText,
    Estimate,
    Outcome,
    Prediction,
    PredictionKind,
    Relation,
    Row,
    Run,
)

DESIGN = {"dk": [8, 64], "distribution": "t", "standardize": False, "scale": None, "alpha": 1e-6}


def estimate(value: float, se: float | None, withheld: str = "") -> Estimate:
    return Estimate(
        value=value,
        se=se,
        lo=None if se is None else value - 2 * se,
        hi=None if se is None else value + 2 * se,
        level=0.95,
        blocks=64,
        samples=1_048_576,
        withheld=withheld,
    )


def row(
    id_: str,
    quantity: str,
    params: dict[str, object],
    found: Estimate | None,
    prediction: tuple[float | None, PredictionKind],
    *,
    verdict: Outcome,
    expected: Outcome = Outcome.CONFIRMED,
    reason: str = "",
    source: str = "theory",
) -> Row:
    value, kind = prediction
    return Row(
        id=id_,
        quantity=quantity,
        params=params,
        estimate=found,
        prediction=Prediction(value=value, kind=kind, source=source),
        verdict=verdict,
        expected=expected,
        reason=reason,
        tolerance=None if value is None else 0.01 * abs(value),
        detectable=None if value is None else 0.02 * abs(value),
    )


def run(
    command: str, outcome: str, code: int, rows: tuple[Row, ...], notes: tuple[str, ...]
) -> Run:
    return Run(
        command=command,
        version="0.1.0",
        outcome=outcome,
        exit_code=code,
        design=DESIGN,
        seed=7,
        generator="PCG64DXSM",
        rows=rows,
        notes=notes,
        environment={"python": "3.11.7", "started": "2025-01-02T03:04:05+00:00", "seconds": 1.25},
    )


@pytest.fixture
def mixed() -> Run:
    """Every verdict and kind of prediction; an error bar is withheld, an estimate absent."""
    return run(
        "verify",
        "NOT as expected",
        3,
        (
            row(
                "var-64",
                "dot.variance",
                {"dk": 64, "scale": None},
                estimate(63.98213, 0.0312),
                (64.0, "exact"),
                verdict=Outcome.CONFIRMED,
                reason="inside the band",
            ),
            row(
                "var|root",
                "logit.variance",
                {"dk": 64, "scale": "none"},
                estimate(63.98213, 0.0312),
                (8.0, "stated"),
                verdict=Outcome.REFUTED,
                expected=Outcome.REFUTED,
                reason="it is the std that is 8",
            ),
            row(
                "scaled",
                "logit.variance",
                {"dk": 64, "scale": "sqrt"},
                estimate(1.0609, 0.0005),
                (1.0, "exact"),
                verdict=Outcome.REFUTED,
                reason="outside the band <0.99, 1.01>",
            ),
            row(
                "tail",
                "dot.iqr",
                {"dk": 64, "distribution": "cauchy"},
                estimate(1.42e-22, 0.031e-22),
                (1.4e-22, "exact"),
                verdict=Outcome.INCONCLUSIVE,
                reason="needs about 900 blocks (12 s)",
            ),
            row(
                "no-variance",
                "dot.variance",
                {"dk": 64, "distribution": "cauchy"},
                estimate(1.2345e9, None, "not available (fourth moment infinite)"),
                (None, "infinite"),
                verdict=Outcome.UNDEFINED,
                expected=Outcome.UNDEFINED,
                reason="Cauchy components have no variance",
            ),
            row(
                "near",
                "softmax.effective_keys",
                {"dk": 64, "keys": 1024, "level": 0.5},
                estimate(12.5, 0.25),
                (12.0, "limit"),
                verdict=Outcome.UNDEFINED,
                expected=Outcome.UNDEFINED,
                reason="known in the limit only",
            ),
            row(
                "port",
                "float.exp",
                {},
                None,
                (None, "none"),
                verdict=Outcome.NOT_RUN,
                reason="no torch",
            ),
        ),
        ("Unscaled, ‖J‖_F is larger at 64 keys: a row that two keys share has the largest.",),
    )


@pytest.fixture
def sweep() -> Run:
    """Two designs, with quantities of which only some take a statistic; all confirmed."""
    rows = [
        row(
            f"{quantity}[dk={dk},{statistic}]",
            quantity,
            {"dk": dk, "scale": "sqrt", "multiplier": dk**-0.5, "sigma": 1.0}
            | ({"statistic": statistic} if statistic else {}),
            estimate(value * 1.001, value * 0.0021),
            (value, "exact"),
            verdict=Outcome.CONFIRMED,
        )
        for dk in (8, 64)
        for quantity, statistic, value in (
            ("softmax.saturated_fraction", "", 0.0123),
            ("jacobian.frobenius", "rms", 1 / 7),
            ("jacobian.frobenius", "mean", 3e-9),
        )
    ]
    return run("saturation", "as expected", 0, tuple(rows), ())


SOURCE = "measured only: no closed form is known"
BEYOND = "not available (a quantile lies beyond the bins)"


@pytest.fixture
def spread() -> Run:
    """Two numbers of keys, two scales; of eleven numbers each, two are judged."""
    rows: list[Row] = []
    for keys in (8, 64):
        for scale, factor in (("none", 1.0), ("dk", 0.25)):
            params = {"dk": 64, "keys": keys, "scale": scale}
            rows += [_judged("softmax.entropy", params, 2.0 * factor)]
            rows += [_measured("softmax.max_weight", params, estimate(0.79096 * factor, 0.00017))]
            rows += [
                _measured("softmax.effective_keys", params, estimate(28.1016 / factor, 0.0095))
            ]
            for name in ("jacobian.frobenius", "jacobian.trace"):
                for statistic, value in (
                    ("mean", 0.7),
                    ("rms", 0.8),
                    ("median", 0.6),
                    ("q95", 1e-7),
                ):
                    every = params | {"statistic": statistic}
                    if (name, statistic) == ("jacobian.trace", "mean"):
                        rows += [_judged(name, every, value * factor)]
                        continue
                    se, withheld = (None, BEYOND) if statistic == "q95" else (value / 4000, "")
                    rows += [_measured(name, every, estimate(value * factor, se, withheld))]
    return run("saturation", "as expected", 0, tuple(rows), ())


def _judged(quantity: str, params: dict[str, object], value: float) -> Row:
    return row(
        f"{quantity}{sorted(params.items())}",
        quantity,
        params,
        estimate(value, value / 3000),
        (value, "exact"),
        verdict=Outcome.CONFIRMED,
        reason="inside the band",
    )


def _measured(quantity: str, params: dict[str, object], found: Estimate) -> Row:
    return row(
        f"{quantity}{sorted(params.items())}",
        quantity,
        params,
        found,
        (None, "none"),
        verdict=Outcome.UNDEFINED,
        expected=Outcome.UNDEFINED,
        reason=f"no prediction: {SOURCE}",
        source=SOURCE,
    )


def claim(
    id_: str,
    statement: str,
    stated: float | None,
    found: Estimate | None,
    verdict: Outcome = Outcome.CONFIRMED,
    expected: Outcome = Outcome.CONFIRMED,
    *,
    right: str = "",
    section: str = "1.4",
    relation: Relation = "equal",
    params: dict[str, object] | None = None,
) -> Row:
    return Row(
        id=id_,
        quantity="documentary" if found is None else "dot.variance",
        params=params or {},
        estimate=found,
        prediction=Prediction(
            value=None if stated is None else float(stated),
            kind="none" if stated is None else "stated",
            source="stated",
            relation=relation,
        ),
        verdict=verdict,
        expected=expected,
        reason=f"the reason of {id_}",
        claim=ClaimText(statement=statement, source="B", section=section, right=right),
    )


COMPUTED = Estimate(
    value=0.30719588, se=0.0, lo=0.30719588, hi=0.30719588, level=1.0, blocks=0, samples=0
)


@pytest.fixture
def judged() -> Run:
    """Claims: confirmed, one of a list, refuted as expected, computed, one without a number.

    Beside them a prediction of theory and a comparison with a baseline; all as expected.
    """
    refuted = Outcome.REFUTED
    rows = (
        claim("A-var[dk=8]", "the variance is d_k", 8, estimate(8.0025, 0.0074)),
        claim("A-var[dk=64]", "the variance is d_k", 64, estimate(64.013, 0.054)),
        claim(
            "B-1.4",
            "the unscaled Jacobian is smaller",
            0,
            estimate(0.08626, 0.0003),
            refuted,
            refuted,
            right="it is larger: 0.271 against 0.185",
            relation="at most",
            params={"dk": 64, "scale": "none", "versus": {"scale": "sqrt"}},
        ),
        claim("B-15.3", "softmax(…) ≈ 0.295", 0.295, COMPUTED, refuted, refuted, right="0.307"),
        claim("B-9", "a date", None, None, Outcome.NOT_RUN, Outcome.NOT_RUN),
        row(
            "theory/dot.variance[dk=8]",
            "dot.variance",
            {"dk": 8},
            estimate(8.0025, 0.0074),
            (8.0, "exact"),
            verdict=Outcome.CONFIRMED,
        ),
        row(
            "moved/A-var[dk=8]",
            "dot.variance",
            {"dk": 8},
            estimate(0.001, 0.01),
            (0.0, "stated"),
            verdict=Outcome.CONFIRMED,
        ),
    )
    return run("verify", "as expected", 0, rows, ("A note.",))


@pytest.fixture
def unexpected(judged: Run) -> Run:
    """`judged` with a claim, a prediction and a comparison that come out otherwise, and one open.

    One claim was not run though it has a number.
    """
    var8, var64, smaller, weights, date, theory, moved = judged.rows
    rows = (
        dataclasses.replace(var8, verdict=Outcome.INCONCLUSIVE),
        dataclasses.replace(var64, verdict=Outcome.NOT_RUN, estimate=None),
        dataclasses.replace(smaller, verdict=Outcome.CONFIRMED),
        weights,
        date,
        dataclasses.replace(theory, verdict=Outcome.REFUTED, reason="outside the band"),
        dataclasses.replace(moved, verdict=Outcome.REFUTED, reason="moved by 0.3"),
    )
    return dataclasses.replace(judged, outcome="NOT as expected", exit_code=3, rows=rows)
