"""Tails of data of unknown law: which sample moments, and which error bars, may be believed.

E|x|^p is finite for p below the tail index ν and infinite above it. A sample moment is a number
whether or not it estimates anything, so the tail is looked at first. Everything here is a
statement about the part of the law that n data can show.
"""

from __future__ import annotations

from sdpa_check.tails.diagnosis import Judgement, TailReport, Trust, diagnose
from sdpa_check.tails.growth import Growth
from sdpa_check.tails.shape import Hill, Pareto, hill, pareto_k

__all__ = [
    "Growth",
    "Hill",
    "Judgement",
    "Pareto",
    "TailReport",
    "Trust",
    "diagnose",
    "hill",
    "pareto_k",
]
