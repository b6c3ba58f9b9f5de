"""The registry as Markdown: ``docs/claims.md`` and ``docs/quantities.md``.

``sdpa-check claims list --format md`` and ``sdpa-check claims quantities --format md`` write them.
"""

from __future__ import annotations

import inspect
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING

from sdpa_check.claims import describe, vocabulary
from sdpa_check.quantities import ExactQuantity
from sdpa_check.quantities.params import DESIGN, ROW
from sdpa_check.records import Outcome
from sdpa_check.report import markup, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sdpa_check.claims.claim import Claim
    from sdpa_check.logits.transforms import Transform
    from sdpa_check.quantities import Quantity
    from sdpa_check.quantities.params import Param

_CLAIMS = """\
What the documents say, and what an honest run finds. `sdpa-check verify` measures every claim that
has a quantity; `sdpa-check claims show ID` tells more of one. **confirmed**: the document is right.
**refuted**: it errs, and the right value stands beside. **not run**: nothing to measure, with the
reason.

This page is made by `sdpa-check claims list --format md > docs/claims.md`.
"""

_QUANTITIES = """\
Every number that a claim can ask for. s = q·k is a dot product, x = c·s the logit behind a scaling
rule, p = softmax(x) a row of m weights, H its entropy, J = diag(p) − ppᵀ its Jacobian.

This page is made by `sdpa-check claims quantities --format md > docs/quantities.md`.
"""

_SAMPLED = """\
Measured on random queries and keys, with an error bar from independent blocks. The last column says
where theory predicts the number, for independent components with mean 0 (where that gives nothing,
½); t is t(5). "In a limit" is a value for comparison, which decides no verdict.
"""

_COMPUTED = """\
Evaluated on given numbers; nothing is random. The last column bounds what rounding can do.
"""

_STEPS = """\
Where a quantity takes a `pipeline`, as `ledger --pipeline` does: steps from q and k to the logits,
with bars between them, in the order in which they act; in TOML also a list of steps. Sources make q
and k, the others change q and k (d components, n queries, m keys), score them, or change the logits
x. A step that is named twice acts twice.
"""

_STEP_COLUMNS = ("step", "acts on", "is written", "does")

_SAMPLED_COLUMNS = ("name", "formula", "unit", "of", "parameters", "prediction")
_COMPUTED_COLUMNS = ("name", "formula", "unit", "parameters", "rounding")


def claims_page(claims: Sequence[Claim]) -> str:
    """All claims by source and section: what is stated, what is right, and the verdict."""
    ordered = describe.in_order(claims)
    parts = ["# Claims", _CLAIMS, _overview(ordered)]
    for source, some in groupby(ordered, lambda claim: claim.source):
        parts.append(f"## {_heading('Document', source)}")
        for section, few in groupby(some, lambda claim: claim.section):
            parts += [f"### {_heading('Section', section)}", "\n".join(_entries(few))]
    return _page(parts)


def _heading(word: str, name: str) -> str:
    """``Section 8.2``; ``derivation``; ``Section without a name``."""
    if not name:
        return f"{word} without a name"
    named = name[0].isdigit() or word == "Document"
    return markup.escaped(f"{word} {name}" if named else name[0].upper() + name[1:])


def _overview(claims: Sequence[Claim]) -> str:
    """How many claims of each document have which verdict."""
    tally = Counter((claim.source, claim.expected) for claim in claims)
    sources = list(dict.fromkeys(claim.source for claim in claims))
    shown = [each for each in Outcome if any(tally[source, each] for source in sources)]
    head = ["document", *map(str, shown)]
    body = [[source, *(str(tally[source, each]) for each in shown)] for source in sources]
    return markup.table([head, *body], head[1:])


def _entries(claims: Iterable[Claim]) -> Iterator[str]:
    for group in describe.groups(claims):
        first = group[0]
        yield f"- **{markup.escaped(describe.name(group))}** {markup.escaped(first.statement)}"
        if first.quantity:
            yield f"  - {_measured(group)}; stated {markup.escaped(describe.stated(group))}"
        texts = {"right": first.right, "note": first.note}
        told = "; ".join(f"{label}: {text}" for label, text in texts.items() if text)
        slow = " (slow)" if first.slow else ""
        yield f"  - **{first.expected}**{slow}{'; ' if told else ''}{markup.escaped(told)}"


def _measured(group: Sequence[Claim]) -> str:
    """The quantity with the parameters that all claims of a group share."""
    text = rows.assignments(describe.shared_params(group))
    return f"`{group[0].quantity}`{f' {markup.escaped(text)}' if text else ''}"


def quantities_page(some: Sequence[Quantity | ExactQuantity]) -> str:
    """The vocabulary: formula, unit, parameters, and where there is a prediction."""
    sampled = [each for each in some if not isinstance(each, ExactQuantity)]
    computed = [each for each in some if isinstance(each, ExactQuantity)]
    used = {name: param for each in some for name, param in vocabulary.own(each).items()}
    parts = ["# Quantities", _QUANTITIES]
    if sampled:
        parts += ["## Sampled", _SAMPLED, _table(_SAMPLED_COLUMNS, map(_sampled, sampled))]
    if computed:
        parts += ["## Computed", _COMPUTED, _table(_COMPUTED_COLUMNS, map(_computed, computed))]
    parts += ["## Parameters", "What the tables above name:", _params(used)]
    if sampled:
        parts += ["Every sampled quantity takes those of the draws:", _params(DESIGN)]
        parts += ["Those of softmax rows take the number of keys:", _params(ROW)]
    if "pipeline" in used:
        parts += ["## Steps of a pipeline", _STEPS, _table(_STEP_COLUMNS, map(_step, _steps()))]
    return _page(parts)


def _steps() -> Iterable[type[Transform]]:
    from sdpa_check.logits.transforms import TRANSFORMS

    return TRANSFORMS.values()


def _step(each: type[Transform]) -> list[str]:
    from sdpa_check.logits.transforms import base

    stages = {
        base.Source: "nothing: a source",
        base.OnVectors: "q, k",
        base.Score: "q, k: the score",
        base.OnLogits: "logits",
    }
    acts = ", ".join(where for stage, where in stages.items() if issubclass(each, stage))
    does = inspect.cleandoc(each.__doc__ or "").partition("\n\n")[0].replace("\n", " ")
    return [each.name, acts, each.usage, does.replace("``", "")]


def _sampled(asked: Quantity) -> list[str]:
    blocks = vocabulary.origin(asked).partition(": ")[2]
    params = ", ".join(asked.params)
    return [asked.name, asked.formula, asked.unit, blocks, params, vocabulary.predicted(asked)]


def _computed(asked: ExactQuantity) -> list[str]:
    bound = rows.number(asked.bound, 2) if asked.bound else "0"
    return [asked.name, asked.formula, asked.unit, ", ".join(asked.params), bound]


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    return markup.table([head, *body])


def _params(some: dict[str, Param]) -> str:
    lines = ([name, param.meaning, param.want] for name, param in some.items())
    return _table(("name", "is", "value"), lines)


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip() for part in parts) + "\n"
