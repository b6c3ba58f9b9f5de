"""sdpa-check: measure what the scale of attention really does.

The Python API returns the records that the commands print::

    import sdpa_check

    run = sdpa_check.variance(dk=64)
    run.outcome, run.rows[1].estimate.value

Nothing heavy is imported before one of these names is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sdpa_check.records import (
        Component,
        Design,
        Estimate,
        Fault,
        Outcome,
        Prediction,
        Row,
        Run,
    )
    from sdpa_check.studies.compare import compare
    from sdpa_check.studies.gradient import gradient
    from sdpa_check.studies.ledger import ledger
    from sdpa_check.studies.saturation import saturation
    from sdpa_check.studies.train import train
    from sdpa_check.studies.variance import variance
    from sdpa_check.studies.verify import verify
    from sdpa_check.tails import diagnose

__version__ = "0.1.0"

__all__ = [
    "Component",
    "Design",
    "Estimate",
    "Fault",
    "Outcome",
    "Prediction",
    "Row",
    "Run",
    "__version__",
    "compare",
    "diagnose",
    "gradient",
    "ledger",
    "saturation",
    "train",
    "variance",
    "verify",
]

_HOMES = {
    **dict.fromkeys(
        ("Component", "Design", "Estimate", "Fault", "Outcome", "Prediction", "Row", "Run"),
        "sdpa_check.records",
    ),
    "compare": "sdpa_check.studies.compare",
    "diagnose": "sdpa_check.tails",
    "gradient": "sdpa_check.studies.gradient",
    "ledger": "sdpa_check.studies.ledger",
    "saturation": "sdpa_check.studies.saturation",
    "train": "sdpa_check.studies.train",
    "variance": "sdpa_check.studies.variance",
    "verify": "sdpa_check.studies.verify",
}


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
