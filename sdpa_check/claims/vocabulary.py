"""The quantities in words: what each is, what it takes, and where theory predicts it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sdpa_check.claims.claim import case
from sdpa_check.claims.registry import allowed
from sdpa_check.errors import InputError
from sdpa_check.quantities import ExactQuantity
from sdpa_check.quantities.params import PARAMS
from sdpa_check.report import rows

if TYPE_CHECKING:
    from sdpa_check.quantities import Quantity
    from sdpa_check.quantities.params import Param

_LAWS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "uniform": {},
    "rademacher": {},
    "laplace": {},
    "mixture": {},
    "t": {"df": 5.0},
    "cauchy": {},
}
_EXAMPLES = {
    "scale": "sqrt",
    "pipeline": "scale:sqrt",
    "level": 0.75,
    "threshold": 3.0,
    "low": 0.1,
    "high": 0.9,
    "lr": 1.0,
    "steps": 200,
}
_STATISTICS = ("mean", "rms", "median", "q05", "q95")
_KINDS = {"exact": "exact", "limit": "in a limit", "infinite": "∞"}
_BLOCKS = {
    "dot": "dot products",
    "rows": "softmax rows",
    "weights": "softmax rows and their weights",
    "pipeline": "softmax rows behind a pipeline",
    "start": "new layers of the task of train",
    "train": "layers trained on the task of train",
}


def origin(asked: Quantity | ExactQuantity) -> str:
    """Where the number comes from: ``sampled: dot products``, or ``computed``."""
    if isinstance(asked, ExactQuantity):
        return "computed"
    return f"sampled: {_BLOCKS[asked.sampling]}{', over a sweep of d_k' if asked.sweep else ''}"


def own(asked: Quantity | ExactQuantity) -> dict[str, Param]:
    """The parameters that not every sampled quantity takes."""
    return {name: PARAMS[name] for name in asked.params}


def to_dict(asked: Quantity | ExactQuantity) -> dict[str, Any]:
    """What there is to know about a quantity, as JSON values."""
    return {
        "name": asked.name,
        "formula": asked.formula,
        "unit": asked.unit,
        "origin": origin(asked),
        "prediction": predicted(asked),
        "params": {
            name: {"meaning": param.meaning, "want": param.want}
            for name, param in allowed(asked).items()
        },
    }


def predicted(asked: Quantity | ExactQuantity) -> str:
    """For which laws of the components theory knows the number, found by asking it.

    Asked at independent components with mean 0, and where that gives nothing with mean ½.
    ``exact for every law but cauchy; ∞ for cauchy``.
    """
    if isinstance(asked, ExactQuantity):
        rounding = (
            f"up to a rounding of {rows.number(asked.bound, 2)}" if asked.bound else "exactly"
        )
        return f"the number itself, {rounding}"
    statistics = _STATISTICS if "statistic" in asked.params else (None,)
    if asked.trained:
        return _KINDS.get(_kind(asked, None, {}), "none: measured only")
    found = {each: _text(_by_kind(asked, each)) for each in statistics}
    told = [f"{each}: {text}" if each else text for each, text in found.items() if text]
    return "; ".join(told) or "none: measured only"


def _by_kind(asked: Quantity, statistic: str | None) -> dict[str, list[str]]:
    """Kind of prediction → laws."""
    for more in ({}, {"mean": 0.5}):
        kinds: dict[str, list[str]] = {}
        for law, options in _LAWS.items():
            kind = _kind(asked, statistic, {"dist": law, **options, **more})
            kinds.setdefault(kind, []).append(law)
        if set(kinds) != {"none"}:
            return kinds
    return {}


def _kind(asked: Quantity, statistic: str | None, params: dict[str, Any]) -> str:
    given = params | {"dk": [16, 64] if asked.sweep else 64}
    if asked.sampling != "dot":
        given["keys"] = 64
    given |= {name: value for name, value in _EXAMPLES.items() if name in asked.params}
    if statistic is not None:
        given["statistic"] = statistic
    try:
        return asked.predict(case(asked, given)).kind
    except InputError:  # a statistic that the quantity does not have
        return "none"


def _text(kinds: dict[str, list[str]]) -> str:
    parts = []
    for kind, word in _KINDS.items():
        laws = kinds.get(kind, [])
        others = [law for law in _LAWS if law not in laws]
        if laws and len(others) < len(laws) - 1:
            but = f" but {' and '.join(others)}" if others else ""
            parts.append(f"{word} for every law{but}")
        elif laws:
            parts.append(f"{word} for {', '.join(laws)}")
    return "; ".join(parts)
