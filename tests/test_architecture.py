"""The rules of the architecture, read off the source text."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

import sdpa_check

ROOT = Path(sdpa_check.__file__).parent
SOURCES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
SOURCES["sdpa_check"] = SOURCES.pop("__init__")

LAYERS = (
    {"sdpa_check", "errors", "records", "packing"},
    {
        "rng",
        "forked",
        "student",
        "histogram",
        "distributions",
        "logits",
        "rowsums",
        "environment",
    },
    {"theory"},  # errors, records and itself
    {"report"},  # the same: it draws records and knows no experiment
    {"closedforms"},
    {"softmax", "engine", "power", "cluster"},
    {"measures", "verdict", "tails", "checkpoint"},
    {"estimates"},
    {"training"},
    {"quantities"},
    {"checks"},
    {"works"},
    {"planning"},
    {"sampling", "inputs"},
    {"experiment", "claims"},
    {"studies"},
    {"cli"},
    {"__main__"},
)
"""A module imports from layers above its own, and within a package from its siblings."""

RECORDS_ONLY = {"theory", "report"}
MEASURING = {
    "distributions",
    "histogram",
    "softmax",
    "rowsums",
    "closedforms",
    "engine",
    "measures",
    "estimates",
}
RANDOM_MAKERS = {
    *("default_rng", "SeedSequence", "Generator", "RandomState"),
    *("PCG64", "PCG64DXSM", "SFC64", "Philox", "MT19937"),
}


@functools.cache
def parsed(module):
    return ast.parse(SOURCES[module].read_text(encoding="utf-8"))


def for_types_only(tree):
    """Nodes under ``if TYPE_CHECKING``."""
    blocks = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {id(inner) for block in blocks for inner in ast.walk(block)}


def late(tree):
    """Nodes inside a function, which run when it is called."""
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {id(inner) for function in functions for inner in ast.walk(function)}


def imports(tree):
    """(imported dotted name, node) for everything that is imported anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from ((f"{node.module}.{alias.name}", node) for alias in node.names)


def own_imports(tree, *, with_types=True):
    """The modules of this package that a source imports."""
    skipped = set() if with_types else for_types_only(tree)
    found = set()
    for name, node in imports(tree):
        parts = name.split(".")
        if parts[0] != "sdpa_check" or id(node) in skipped:
            continue
        inside = ".".join(parts[1:])
        while inside and inside not in SOURCES:
            inside = inside.rpartition(".")[0]
        found.add(inside or "sdpa_check")
    return found


def package(module):
    return module.partition(".")[0]


def layer(module):
    numbers = [i for i, names in enumerate(LAYERS) if package(module) in names]
    assert numbers, f"{module} belongs to no layer: give it a place in LAYERS"
    return numbers[0]


def against_the_order(module, tree):
    """Imports that point the wrong way. The lazy names of the package root are for types only."""
    wanted = own_imports(tree, with_types=module != "sdpa_check")
    others = {name for name in wanted if package(name) != package(module)}
    if package(module) in RECORDS_ONLY:
        return {name for name in others if name not in {"errors", "records"}}
    return {name for name in others if layer(name) >= layer(module)}


def third_party(tree, name):
    return [node for module, node in imports(tree) if package(module) == name]


def makes_randomness(tree):
    """Calls that make a generator, and imports of the standard library's."""
    calls = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
    names = [ast.unparse(call).rpartition(".")[2] for call in calls]
    random = [module for module, _ in imports(tree) if package(module) == "random"]
    return sorted(set(names) & RANDOM_MAKERS) + random


def printing(tree):
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and ast.unparse(n.func) == "print"]


def undocumented(tree):
    """Public classes, functions and methods without a docstring, and the module itself."""
    missing = [] if ast.get_docstring(tree) else ["the module"]
    scopes = [(tree, "")]
    while scopes:
        scope, prefix = scopes.pop()
        for node in scope.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("_"):
                continue
            if not ast.get_docstring(node):
                missing.append(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                scopes.append((node, f"{node.name}."))
    return missing


modules = pytest.mark.parametrize("module", SOURCES)


@modules
def test_imports_point_one_way(module):
    assert not against_the_order(module, parsed(module))


def test_imports_have_no_cycle():
    """Type-only imports count too: two modules that need each other's types are one."""
    graph = {
        module: own_imports(parsed(module), with_types=module != "sdpa_check") - {module}
        for module in SOURCES
    }
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError


@modules
def test_theory_and_measurement_share_no_code(module):
    wanted = {package(name) for name in own_imports(parsed(module))}
    if package(module) == "theory":
        assert wanted <= {"theory", "errors", "records"}
    if package(module) in MEASURING:
        assert "theory" not in wanted


@modules
def test_libraries_stay_where_they_belong(module):
    tree = parsed(module)
    if package(module) != "cli":
        assert not third_party(tree, "typer")
        assert not third_party(tree, "click")
    if package(module) not in {"cli", "report"}:
        assert not third_party(tree, "rich")
    if module not in {"report.plots", "report.marks", "report.scales"}:
        assert not third_party(tree, "matplotlib")


@modules
def test_heavy_libraries_are_imported_late(module):
    tree = parsed(module)
    harmless = for_types_only(tree) | late(tree)
    for name in ("scipy", "matplotlib", "rich", "torch"):
        assert all(id(node) in harmless for node in third_party(tree, name)), name


@modules
def test_generators_are_made_in_one_place(module):
    assert bool(makes_randomness(parsed(module))) == (module == "rng")


@modules
def test_nothing_prints(module):
    assert not printing(parsed(module))


@modules
def test_public_names_are_documented(module):
    assert not undocumented(parsed(module))


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (lambda t: against_the_order("engine", t), "from sdpa_check import estimates"),
        (lambda t: against_the_order("engine", t), "from sdpa_check.measures.dot import DotWork"),
        (lambda t: against_the_order("theory.law", t), "import sdpa_check.student"),
        (lambda t: against_the_order("report.rows", t), "def f():\n    from sdpa_check import rng"),
        (lambda t: third_party(t, "typer"), "from typer.core import TyperGroup"),
        (lambda t: third_party(t, "scipy"), "import numpy, scipy.special"),
        (makes_randomness, "import numpy as np\nx = np.random.default_rng(0).normal()"),
        (makes_randomness, "from numpy.random import SFC64, Generator\nx = Generator(SFC64())"),
        (makes_randomness, "import random"),
        (printing, "def f():\n    print('x')"),
        (undocumented, "x = 1"),
        (undocumented, '"""M."""\nclass C:\n    """C."""\n    def method(self): ...'),
    ],
)
def test_the_rules_catch_an_offender(rule, source):
    assert rule(ast.parse(source))


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (lambda t: against_the_order("engine", t), "from sdpa_check import errors, rng"),
        (lambda t: against_the_order("theory.law", t), "from sdpa_check.theory import moments"),
        (makes_randomness, "def f(g: np.random.Generator) -> None:\n    g.standard_normal()"),
        (printing, "console.print(x)"),
        (undocumented, '"""M."""\ndef _f(): ...\ndef g():\n    """G."""\n    def h(): ...'),
    ],
)
def test_the_rules_let_the_innocent_pass(rule, source):
    assert not rule(ast.parse(source))


def test_a_run_needs_no_heavy_library():
    """The start-up of `variance` must not pay for scipy, matplotlib, rich or typer."""
    code = (
        "import sys, sdpa_check\n"
        "assert 'numpy' not in sys.modules\n"
        "sdpa_check.variance(dk=4, samples=64, jobs=1)\n"
        "print(*({'scipy', 'matplotlib', 'rich', 'typer', 'pydantic'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent
    )
    assert found.stdout.split() == []
