"""How many blocks a design needs, fixed before the first of them is drawn."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sdpa_check import engine, estimates, power
from sdpa_check.measures.dot import DotWork
from sdpa_check.quantities import ExactQuantity, Sample, quantity
from sdpa_check.works import applied, keys, measured

if TYPE_CHECKING:
    from sdpa_check.checks import Check, Settings
    from sdpa_check.measures.rows import RowsWork
    from sdpa_check.quantities import Quantity
    from sdpa_check.records import Design, Estimate
    from sdpa_check.works import PlannedWork

PILOT_BLOCKS = 16
"""Blocks of the pilot that plans the sample size; it has streams of its own and is thrown away.

Where the run will be long the pilot is doubled, again and again: the better its error is known, the
less has to be added for its uncertainty.
"""

_WORTH = 4
"""A pilot of b blocks is doubled for a run of more than b²/4: that saves more than it costs.

`power.blocks_to_judge` asks for about 8/b less of the run after twice as many blocks.
"""

WORK_LIMIT = 2e11
"""Elementary operations a planned run may cost; beyond, checks may end inconclusive and say so."""

_FOLLOWERS = 8
"""A quantity that does not lead may ask for at most this many times the blocks of those that do."""

_PARTS = 4
"""Blocks of a pilot, and of a run that needs few, have a fourth of the groups of a full block."""

_SHARES = (16, 8, 4, 2)
"""A multiplier that needs so many times fewer rows than another gets that share of each block."""


def plan(
    work: PlannedWork, design: Design, group: list[Check], settings: Settings, total: int
) -> tuple[PlannedWork, int]:
    """The work as it is to be run, and the number of its blocks.

    The count comes from the wanted number of samples, or else from the wanted precision by a pilot
    that is thrown away: going on until the error looks small enough would correlate value and
    error.

    Args:
        work: what is measured.
        design: what is drawn.
        group: the checks that read it.
        settings: how checks are run.
        total: how many checks share the false-alarm probability.
    """
    if settings.samples is not None:
        return work, max(power.MIN_BLOCKS, math.ceil(settings.samples / work.size))
    small = work.split(_PARTS)
    ratio = work.size // small.size
    needs = _Asked(design, group, settings, total, ratio).by_pilot(small)
    blocks, chosen = max(needs.values(), default=power.MIN_BLOCKS), small
    if blocks >= 2 * power.MIN_BLOCKS * ratio:
        blocks, chosen = math.ceil(blocks / ratio), work
    if not isinstance(chosen, DotWork):
        from sdpa_check.measures.rows import RowsWork  # dot products go without this import

        if isinstance(chosen, RowsWork):
            chosen = _shared_out(chosen, needs)
    if settings.precision is None:
        blocks = min(blocks, max(power.MIN_BLOCKS, int(WORK_LIMIT / chosen.cost)))
    return chosen, blocks


def _shared_out(work: RowsWork, needs: dict[float, int]) -> RowsWork:
    """The work with a share of its rows for every multiplier that needs less than the others.

    A share of the rows has at most that share of the information, for the rest shares its keys.
    """
    most = max(needs.values())
    depths = tuple(
        dataclasses.replace(depth, share=next((s for s in _SHARES if s * needs[factor] <= most), 1))
        for factor, depth in zip(work.multipliers, work.depths, strict=True)
    )
    return dataclasses.replace(work, depths=depths)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked of a design, from which follows how many blocks that takes.

    Attributes:
        design: what is drawn.
        group: the checks that read it.
        settings: how checks are run.
        total: how many checks share the false-alarm probability.
        ratio: how many blocks of the pilot one of the run may be worth.
    """

    design: Design
    group: list[Check]
    settings: Settings
    total: int
    ratio: int

    def by_pilot(self, work: PlannedWork) -> dict[float, int]:
        """Blocks of `work` needed under every multiplier, by a pilot as long as it is worth."""
        pilot, blocks = dataclasses.replace(work, stream="pilot"), PILOT_BLOCKS
        start: engine.State | None = None
        while True:
            replicates = engine.run(
                pilot,
                seed=self.settings.seed,
                blocks=blocks,
                jobs=self.settings.jobs,
                executor=self.settings.runner,
                start=start,
            )
            needs = self.settled(*self.needs(Sample(work=pilot, replicates=replicates)))
            longest = float(max(needs.values(), default=0))
            if self.settings.precision is None:
                longest = min(longest, WORK_LIMIT / work.cost)
            if longest <= blocks * blocks / _WORTH or 2 * blocks > engine.MAX_REPLICATES:
                return needs
            blocks *= 2
            start = engine.State.longer(replicates, blocks)

    def settled(
        self, lead: Counter[float], rest: Counter[float], unplanned: set[float]
    ) -> dict[float, int]:
        """What every multiplier gets: followers no more than a multiple of what leads needs."""
        most = _FOLLOWERS * max((self.ratio * power.MIN_BLOCKS, *lead.values()))
        needs = {
            factor: max(power.MIN_BLOCKS, lead[factor], min(rest[factor], most))
            for factor in (*lead, *rest)
        }
        return needs | dict.fromkeys(unplanned, max((power.MIN_BLOCKS, *needs.values())))

    def needs(self, sample: Sample) -> tuple[Counter[float], Counter[float], set[float]]:
        """Blocks needed under every multiplier: by what leads, and by what follows.

        A growth over several designs follows: it gets what it needed if all were like this one. The
        third are the multipliers of other comparisons of designs, which are not planned.
        """
        lead, rest, unplanned = Counter[float](), Counter[float](), set[float]()
        for check in self.group:
            asked = quantity(check.quantity)
            if isinstance(asked, ExactQuantity):
                continue
            own = [case for case in check.cases if self.design in case.designs]
            factors = {applied(case, self.design, self.settings) for case in own}
            read = keys(check)
            if len(read) == 1:
                found = measured(check, asked, dict.fromkeys(read, sample), self.settings)
            elif (growth := self.growth(check, asked, sample)) is not None:
                found = growth
            else:
                unplanned |= factors
                continue
            needed = self.needed(check, asked, found, sample.replicates.blocks)
            part = lead if asked.lead and len(read) == 1 else rest
            for factor in factors:
                part[factor] = max(part[factor], needed)
        return lead, rest, unplanned

    def growth(self, check: Check, asked: Quantity, sample: Sample) -> Estimate | None:
        """What is predicted of a growth, with its error if all designs were known like this one.

        None where the check is about no growth, or no error is known.
        """
        value = check.prediction(asked).value
        if asked.sweep is None or check.versus is not None or value is None:
            return None
        from sdpa_check.quantities.sweeps import slope_error

        case, factor = check.case, applied(check.case, self.design, self.settings)
        own = dataclasses.replace(sample, multiplier=factor)
        found = asked.sweep(dataclasses.replace(case, designs=(self.design,)), own)
        if found.se is None:
            return None
        se = slope_error(case) * found.se
        return estimates.with_error(value, se, found.blocks, found.samples)

    def needed(self, check: Check, asked: Quantity, found: Estimate, pilot: int) -> int:
        """Blocks that one check needs; 0 where it has no error bar or nothing to be held to.

        Args:
            check: the check.
            asked: its quantity.
            found: its number, from a pilot. It may have the degrees of freedom of fewer blocks.
            pilot: blocks of the pilot.
        """
        settings, prediction = self.settings, check.prediction(asked)
        if found.se is None or prediction.value is None or prediction.kind == "limit":
            return 0
        band = check.band_for(asked, prediction, settings.tolerance)
        if not 0 < band < math.inf:
            return 0
        if settings.precision is not None:
            target = settings.precision * band / (check.tolerance or settings.tolerance)
            return power.blocks_needed(found.se, pilot, target)
        # A number far from its claim is told apart from it with less than the band asks for.
        away = abs(found.value - prediction.value) - 4 * found.se
        room = max(band, away - band if check.relation == "equal" else away)
        judged = partial(power.blocks_to_judge, found.se, pilot, room)
        judged = partial(judged, alpha=settings.alpha, checks=self.total)
        few, many = power.MIN_BLOCKS, engine.LEAST_REPLICATES
        each = pilot // found.blocks
        # A run that is long anyway has more replicates, whose t quantile asks for less.
        long = max(self.ratio * many, judged(blocks=many // each))
        return min(judged(blocks=few // each), long)
