"""Blocks for the transforms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sdpa_check.logits.transforms import Context


class Block:
    """A context with one draw of q and k, which nobody may write to."""

    def __init__(self, dk, keys, queries, *, dtype=np.float64, d_model=None, seed=0):
        self.context = Context(dk=dk, keys=keys, queries=queries, d_model=d_model, dtype=dtype)
        rng = np.random.default_rng(seed)
        self.q = rng.standard_normal((dk, queries)).astype(dtype)
        self.k = rng.standard_normal((dk, keys)).astype(dtype)
        self.q.flags.writeable = self.k.flags.writeable = False

    def run(self, pipeline, seed=1):
        return pipeline.run(np.random.default_rng(seed), lambda _: (self.q, self.k), self.context)


@pytest.fixture
def block():
    return Block


@pytest.fixture
def own_modules(monkeypatch):
    """Put the modules beside this file where a user's own would be."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
