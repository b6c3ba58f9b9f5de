"""Small trials, so that a test of many costs little."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sdpa_check.training.model import Task
from sdpa_check.training.trial import Trial

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def trial() -> Callable[..., Trial]:
    """A trial of 9 keys, ``trial(lr=1.0, seed=3)``; odd sizes leave no vector register full."""

    def make(
        *, dk=3, keys=9, scale="sqrt", lr=1.0, warmup=0, steps=60, optimiser="sgd", seed=0
    ) -> Trial:
        return Trial(
            task=Task(dk=dk, dmodel=11, keys=keys),
            scale=scale,
            multiplier={"none": 1.0, "sqrt": dk**-0.5}[scale],
            lr=lr,
            warmup=warmup,
            steps=steps,
            optimiser=optimiser,
            seed=seed,
        )

    return make
