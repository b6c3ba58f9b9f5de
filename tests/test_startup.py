"""What a command imports: a module that it does not need would be paid for at every start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import sdpa_check

ROOT = Path(sdpa_check.__file__).parent.parent
VARIANCE = "variance --dk 64 --no-plot --no-save"
TO_BE_TOLD = """
import sys
{before}
from sdpa_check.__main__ import main
sys.argv[1:] = {arguments!r}
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""

ALWAYS = {
    *("sdpa_check", "sdpa_check.__main__", "sdpa_check.errors"),
    *("sdpa_check.cli", "sdpa_check.cli.app", "sdpa_check.cli.conversion"),
    "sdpa_check.cli.stopping",
}
"""The modules of the package behind ``--help``."""

MEASURING = ALWAYS | {
    f"sdpa_check.{name}"
    for name in (
        *("checkpoint", "checks", "engine", "environment", "estimates", "experiment", "forked"),
        *(
            "histogram",
            "inputs",
            "packing",
            "planning",
            "power",
            "records",
            "rng",
            "sampling",
            "student",
            "verdict",
        ),
        *("works", "cli.measure", "cli.options", "cli.output"),
        *("distributions", "distributions.base", "distributions.dependence"),
        *("distributions.gaussian", "logits", "logits.scaling"),
        *("measures", "measures.dot", "measures.scores"),
        *("quantities", "quantities.base", "quantities.law", "quantities.moments"),
        *("quantities.params", "quantities.shares"),
        *("report", "report.measured", "report.rows", "report.summary", "report.table"),
        *("report.terminal", "studies", "studies.study", "studies.variance"),
        *("theory", "theory.charfun", "theory.inversion", "theory.law", "theory.moments"),
    )
}
"""The modules of the package behind a first `variance`: a new one belongs here or is imported late.
"""

HEAVY = {"scipy", "scipy.special", "scipy.stats", "matplotlib", "distributed", "threadpoolctl"}


def imported(line: str, before: str = "") -> set[str]:
    """All modules that are imported in a process at the end of a command."""
    done = subprocess.run(
        [sys.executable, "-c", TO_BE_TOLD.format(before=before, arguments=line.split())],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert "Traceback" not in done.stderr
    return set(done.stderr.splitlines()[-1].split())


def own(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "sdpa_check"}


@pytest.fixture(scope="module")
def variance():
    return imported(VARIANCE)


@pytest.mark.parametrize("line", ["--help", "-h", "--version", "varience"])
def test_the_list_of_commands_imports_none_of_them(line):
    found = imported(line)
    assert own(found) == ALWAYS
    assert not found & (HEAVY | {"numpy", "rich"})


def test_the_help_of_a_command_imports_what_declares_it():
    found = imported("variance --help")
    declared = {"sdpa_check.cli.measure", "sdpa_check.cli.options", "sdpa_check.cli.output"}
    assert own(found) == ALWAYS | declared
    assert not found & (HEAVY | {"numpy", "rich"})


def test_a_first_variance_imports_no_more_than_it_needs(variance):
    assert own(variance) == MEASURING
    assert not variance & HEAVY
    assert "numpy" in variance


def test_options_that_need_no_conversion_spare_that_of_typer(variance):
    # Some versions of typer import pydantic as soon as one value is to be converted.
    converter = {"pydantic"} - imported("--help")
    assert not variance & converter
    assert not imported("compare --format nonsense --help") & converter


def test_an_eager_import_would_be_seen(variance):
    # The control of the tests above.
    found = imported("--help", "import scipy.special, matplotlib, sdpa_check.cli.train")
    assert found & HEAVY == {"scipy", "scipy.special", "matplotlib"}
    assert own(found) - ALWAYS
    assert "sdpa_check.measures.rows" in imported("saturation --samples 4096 --no-save") - variance
