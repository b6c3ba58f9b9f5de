from __future__ import annotations

import re

from sdpa_check.report import markup, text


def test_a_job_summary_has_outcome_table_and_folded_details(judged):
    assert text.markdown(judged) == (
        """\
**as expected: 2 confirmed, 2 refuted, 1 not measured**

| id             | claim                                                | stated |          measured | verdict   |
| -------------- | ---------------------------------------------------- | -----: | ----------------: | --------- |
| A-var\\[dk=8\\]  | the variance is d_k                                  |      8 |   8.0025 ± 0.0074 | confirmed |
| A-var\\[dk=64\\] | the variance is d_k                                  |     64 |    64.013 ± 0.054 | confirmed |
| B-1.4          | the unscaled Jacobian is smaller (scale=none − sqrt) |    ≤ 0 | 0.08626 ± 0.00030 | refuted ✓ |
| B-15.3         | softmax(…) ≈ 0.295                                   |  0.295 |          0.307196 | refuted ✓ |

✓ the verdict that the claim's record expects: where a document errs, "refuted"

<details>
<summary>refuted, as expected</summary>

- **B-1.4** the unscaled Jacobian is smaller. Right: it is larger: 0.271 against 0.185.
- **B-15.3** softmax(…) ≈ 0.295. Right: 0.307.

</details>

theory: 1 of 1 exact predictions hold on the same samples

baseline: 1 of 1 numbers are where the earlier run had them

<details>
<summary>not measured (1)</summary>

- **B-9** a date: the reason of B-9

</details>

A note.

verify dk=8,64 distribution=t standardize=no

± is one standard error (64 independent blocks, 1,048,576 samples); seed 7, PCG64DXSM
"""  # noqa: E501 - a table in Markdown has one line per row
    )


def test_what_is_wrong_is_not_folded_and_stands_above_the_table(unexpected):
    written = text.markdown(unexpected)
    above = written[: written.index("| id ")]
    assert above.startswith("**NOT as expected: 1 claim ✗, ")
    assert "<details>" not in above
    assert "\n\n**✗ confirmed, expected refuted: B-1.4**\n\n- the unscaled Jacobian" in above
    assert "\n- Moved by 0.3.\n" in above
    assert len(re.findall(r"<details>\n<summary>", written)) == written.count("</details>") == 2


def test_a_folded_part_has_html_in_its_summary_and_markdown_below():
    assert markup.folded("a < b & c", "- *x*") == (
        "<details>\n<summary>a &lt; b &amp; c</summary>\n\n- *x*\n\n</details>"
    )


def test_a_table_is_escaped_and_aligned_in_its_source():
    assert markup.table([("a", "b|c"), ("*", "1")], {"b|c"}) == (
        "| a  | b\\|c |\n| -- | ---: |\n| \\* |    1 |"
    )
