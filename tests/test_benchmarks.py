"""Baselines yield the tool's numbers, ratios are what they say, and pages follow the results."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import baselines, command, dots, figures, page, processes, rows, timing, workers
from benchmarks.figures import Figure
from benchmarks.sizes import TINY
from benchmarks.timing import Rival
from sdpa_check import engine
from sdpa_check.errors import InputError
from sdpa_check.measures.dot import DotWork
from sdpa_check.measures.row_scores import RowsShape
from sdpa_check.measures.rows import RowsWork
from sdpa_check.quantities import Case, Sample
from sdpa_check.records import Design
from sdpa_check.softmax import row_statistics

SCORES = np.random.default_rng(5).normal(0, 2, (6, 12))
MULTIPLIERS = (1.0, 0.5, 0.125)


def tool_moment(name, dk, vectors, blocks):
    work = DotWork(Design(dk=dk), vectors)
    sample = Sample(work=work, replicates=engine.run(work, seed=3, blocks=blocks, jobs=1))
    return dots.estimated(name, Case(designs=(work.design,)), sample)


# --- the baselines compute the same numbers ---


@pytest.mark.parametrize(
    ("name", "baseline"),
    [
        ("dot.variance", baselines.variance),
        ("dot.variance", baselines.one_shot),
        ("dot.excess_kurtosis", baselines.kurtosis),
    ],
)
def test_a_moment_of_the_baseline_is_that_of_the_tool(name, baseline):
    """|z| < 5.5 for the difference; as t with 127 degrees of freedom it fails by chance at 2e-7."""
    tool = tool_moment(name, 16, 256, 128)
    value, se = baseline(np.random.default_rng(4), 16, 400_000)
    assert abs(value - tool.value) < 5.5 * math.hypot(se, tool.se)


def test_chunks_give_what_one_array_gives():
    """Means of s and s² over the same draws; the errors treat the mean of s differently."""
    pairs = baselines.CHUNK // 8
    chunked = baselines.variance(np.random.default_rng(0), 8, pairs)
    whole = baselines.one_shot(np.random.default_rng(0), 8, pairs)
    assert chunked[0] == pytest.approx(whole[0], rel=1e-12)
    assert chunked[1] == pytest.approx(whole[1], rel=1e-2)


def test_chunks_add_up():
    assert list(baselines.chunks(10, 4)) == [4, 4, 2]
    drawn = baselines.dot_products(np.random.default_rng(0), baselines.CHUNK // 2, 5)
    assert [len(s) for s in drawn] == [2, 2, 1]


@pytest.mark.parametrize("index", range(len(MULTIPLIERS)))
def test_naive_closed_forms_are_the_statistics_of_the_tool(index, monkeypatch):
    """Where rows are not saturated, cancellation costs at most a few hundred roundings."""
    monkeypatch.setattr(baselines, "ROW_CHUNK", 4 * SCORES.shape[1])  # a chunk and a rest
    naive = baselines.closed_forms(SCORES, MULTIPLIERS)[index]
    tool = row_statistics(SCORES, MULTIPLIERS)[index]
    for name, values in naive.items():
        np.testing.assert_allclose(values, getattr(tool, name), rtol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("frobenius", baselines.explicit_frobenius),
        ("spectral", baselines.explicit_spectral),
        ("spectral", baselines.explicit_eigenvalue),
    ],
)
def test_explicit_jacobians_have_the_norms_of_the_tool(name, form):
    (tool,) = row_statistics(SCORES, (0.5,))
    np.testing.assert_allclose(form(SCORES, 0.5), getattr(tool, name), rtol=1e-12)


def test_naive_blocks_measure_the_same_entropy():
    """Three differences with |t| < 7, 31 degrees of freedom: by chance at 3 · 7e-8."""
    shape, keys = RowsShape(1, 8, 2), 16
    work = RowsWork(Design(dk=rows.DK, keys=keys), rows.MULTIPLIERS, shape)
    naive = rows.naive_blocks(shape, keys, 32)
    for (value, se), (other, other_se) in zip(rows.entropies(work, 32), naive, strict=True):
        assert abs(value - other) < 7 * math.hypot(se, other_se)


def test_torch_forms_are_those_of_numpy():
    torch = pytest.importorskip("torch")
    scores = torch.from_numpy(SCORES).float()
    naive = baselines.closed_forms(SCORES, MULTIPLIERS)
    for own, other in zip(baselines.torch_closed_forms(scores, MULTIPLIERS), naive, strict=True):
        for name in other:
            np.testing.assert_allclose(own[name].numpy(), other[name], rtol=1e-4)
    torch.manual_seed(0)
    value, se = baselines.torch_variance(16, 50_000)
    assert abs(value - 16) < 5.5 * se  # by chance at 4e-8


# --- equal standard error ---


@pytest.mark.parametrize(("dk", "vectors", "blocks"), [(4, 32, 512), (300, 16, 256)])
def test_the_error_of_a_block_is_that_of_its_formula(dk, vectors, blocks):
    """By Gram matrices and by scores. se² from B blocks varies by √(2/(B − 1)); five of these."""
    tool = tool_moment("dot.variance", dk, vectors, blocks)
    merged = engine.whole(blocks)
    wanted = dots.block_variance(DotWork(Design(dk=dk), vectors)) / merged
    room = 5 * math.sqrt(2 / (tool.blocks - 1))
    assert (tool.se / dk) ** 2 == pytest.approx(wanted, rel=room)


def test_the_error_of_a_pair_is_that_of_its_formula():
    """The plain estimate of the error from 200,000 pairs is right to about 2 %."""
    _, se = baselines.variance(np.random.default_rng(1), 16, 200_000)
    assert (se / 16) ** 2 * 200_000 == pytest.approx(dots.pair_variance(16), rel=0.1)


def test_the_error_of_a_kurtosis_of_independent_pairs():
    """Normal law: 24. One component: μ₄, μ₆, μ₈ of a product of two normals are 9, 225, 11025."""
    assert baselines.kurtosis_variance(3, 15, 105) == 24
    assert dots.pair_kurtosis_variance(10**9) == pytest.approx(24, rel=1e-6)
    by_hand = 11025 - 81 - 36 * (225 - 9) + 324 * 8
    assert dots.pair_kurtosis_variance(1) == pytest.approx(by_hand, rel=1e-12)


# --- rounds and ratios ---


def test_rounds_take_turns_and_every_other_one_runs_backwards():
    order = []
    calls = [lambda: order.append("a"), lambda: order.append("b")]
    times = timing.interleaved(calls, 3)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert [len(each) for each in times] == [3, 3]


def test_a_ratio_is_taken_within_its_round_and_scaled(monkeypatch):
    clock = {"tool": iter([1.0, 2.0, 4.0]), "other": iter([2.0, 6.0, 4.0])}
    monkeypatch.setattr(timing, "seconds", lambda call: next(clock[call()]))
    rivals = [
        Rival(name="other", call=lambda: "other", factor=10.0, target=25.0),
        Rival(name="absent", call=pytest.fail, missing="nobody made it", target=2.0),
    ]
    found, absent = timing.compare("group", "title", lambda: "tool", rivals, 3)
    assert (found.lower, found.median, found.upper) == (15.0, 20.0, 25.0)
    assert (found.tool_seconds, found.other_seconds, found.met) == (2.0, 40.0, False)
    assert (absent.median, absent.met, absent.note) == (None, None, "not run: nobody made it")


@pytest.mark.parametrize(
    ("readings", "counted"), [((1.9, 1.9, 1.9), 2), ((1.9, 1.9, 1.2), 1), ((1.9, 1.7, 1.9), 0)]
)
def test_a_round_of_two_workers_counts_if_both_its_calibrations_do(monkeypatch, readings, counted):
    left = iter(3 * readings)
    monkeypatch.setattr(workers, "available_cores", lambda: 2)
    monkeypatch.setattr(workers, "spin", lambda _: next(left))
    jobs = []
    monkeypatch.setattr(workers.dots, "measured", lambda *_, jobs: jobs)
    monkeypatch.setattr(workers.rows, "entropies", lambda *_: _[-1])
    monkeypatch.setattr(workers, "seconds", lambda call: jobs.append(call()) or 3.0 / jobs[-1])
    for figure in workers.workers(dataclasses.replace(TINY, rounds=2)):
        assert figure.rounds == counted
        assert figure.median == (2.0 if counted else None)
        assert figure.note.startswith("not counted" if not counted else "calibration 1.")


@pytest.mark.parametrize(("together", "reading"), [(1.0, 2.0), (2.0, 1.0)])
def test_the_spin_reads_2_where_two_threads_take_as_long_as_one(together, reading, monkeypatch):
    steps, times = [], iter([1.0, together])
    monkeypatch.setattr(timing, "seconds", lambda call: (call(), next(times))[1])
    hashed = SimpleNamespace(digest=lambda: steps.append(1))
    monkeypatch.setattr(timing, "hashlib", SimpleNamespace(sha256=lambda _: hashed))
    assert timing.spin(3) == reading
    assert len(steps) == 3 * (2 + 1 + 2)


def test_the_peak_is_that_of_the_process_alone():
    """Beside the 64 MiB of the child, the two differ by less than 1; the parent holds 200 more."""
    ballast = np.ones(200 << 17)
    base = processes.peak("pass")
    assert processes.peak("x = b'1' * (64 << 20)") - base == pytest.approx(64, abs=1)
    assert base < ballast.nbytes / 2**20


# --- the runner and its pages ---


@pytest.fixture(scope="module")
def found():
    """Everything once, at tiny sizes; of the two commands that are started only the quick one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "COMMANDS", processes.COMMANDS[:1])
        return command.measure(list(command.GROUPS), dataclasses.replace(TINY, rounds=1))


def test_every_benchmark_runs(found):
    assert {f.group for f in found.figures} == set(command.GROUPS) - {"growth", "profiles"}
    assert {curve.plot for curve in found.curves} == {"d", "m", "n"}
    assert len(found.profiles) == 3
    for figure in found.figures:
        assert figure.median is not None or figure.note.startswith("not ")
        assert figure.median is None or figure.median > 0
    for profile in found.profiles:
        assert 0 < sum(profile.shares) <= 1


def test_results_are_read_as_they_were_written(found):
    assert figures.from_json(figures.to_json(found), "x.json") == found


def test_a_run_is_written_into_the_pages_and_drawn_again_to_the_same(found, tmp_path, capsys):
    (tmp_path / "docs").mkdir()
    places = [*page.parts(found)]
    text = "".join(f"<!-- benchmarks: {name} -->\nold\n<!-- /benchmarks -->\n" for name in places)
    (tmp_path / "docs" / "performance.md").write_text(f"# Head\n{text}end\n", encoding="utf-8")
    command.write(found, tmp_path)
    first = (tmp_path / "docs" / "performance.md").read_text(encoding="utf-8")
    assert "old" not in first
    assert first.count("<!-- benchmarks: ") == len(places)
    assert first.startswith("# Head\n")
    assert first.endswith("end\n")
    assert "explicit J, numpy.linalg.norm(J, 2)" in first
    names = {path.name for path in (tmp_path / "docs" / "images").iterdir()}
    assert names == {f"performance-{x}.{kind}" for x in "dmn" for kind in ("png", "svg")}
    assert command.main(["--redraw"], tmp_path) == 0
    assert (tmp_path / "docs" / "performance.md").read_text(encoding="utf-8") == first
    assert capsys.readouterr().err == ""


def test_a_part_of_the_benchmarks_is_printed_and_not_written(tmp_path, capsys):
    assert command.main(["--tiny", "--only", "limit"], tmp_path) == 0
    assert "of the limit" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_pages_are_those_of_the_results():
    """After a change to the tables: python -m benchmarks --redraw."""
    results = command.read(command.ROOT)
    pages = page.pages(results, command.ROOT)
    assert "docs/performance.md" in pages
    for name, text in pages.items():
        assert (command.ROOT / name).read_text(encoding="utf-8") == text
    assert {figure.group for figure in results.figures} | {"growth", "profiles"} == set(
        command.GROUPS
    )


def test_a_missed_target_is_marked():
    given = {"group": "g", "title": "t", "lower": 1.0, "median": 2.0, "upper": 3.0}
    assert "≥ 30 **missed**" in page.figures_table([Figure(**given, target=30.0)])
    assert "≥ 2 ✓" in page.figures_table([Figure(**given, target=2.0)])
    assert "≤ 1 **missed**" in page.figures_table([Figure(**given, target=1.0, relation="at most")])


def test_a_slope_stands_behind_the_time_it_leads_to():
    curve = figures.Curve(plot="d", label="tool", x=(2.0, 4.0), seconds=(1e-3, 4e-3))
    assert "| 4 | 4.00 ms (+2.0) |" in page.curves_table([curve])


@pytest.mark.parametrize(
    ("value", "text"), [(12345.0, "12,300"), (62.34, "62.3"), (1.0, "1.00"), (0.0123, "0.0123")]
)
def test_a_number_has_three_digits(value, text):
    assert page._number(value) == text


def test_a_place_for_something_else_is_refused(found):
    text = "<!-- benchmarks: speed -->\n<!-- /benchmarks -->"
    with pytest.raises(InputError, match=r"page\.md: benchmarks: got 'speed', want one of summary"):
        page.fill(text, found, "page.md")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "got 'no such file', want a record; run: python -m benchmarks"),
        ("{", "strict JSON"),
        ('{"schema": "other"}', "got 'other', want sdpa-check/benchmarks/1"),
        ('{"schema": "sdpa-check/benchmarks/1"}', "fields of a record of benchmarks"),
    ],
)
def test_results_that_cannot_be_read_are_an_error_of_one_line(content, message, tmp_path, capsys):
    if content is not None:
        (tmp_path / "benchmarks").mkdir()
        (tmp_path / command.RESULTS).write_text(content, encoding="utf-8")
    assert command.main(["--redraw"], tmp_path) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--rounds", "x"], ["--only", "speed"]])
def test_wrong_usage_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2
    assert arguments[1] in capsys.readouterr().err


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_after_a_spin_processes_can_be_forked():
    """Or what is measured of two workers would be two threads."""
    code = "from benchmarks.timing import spin; from sdpa_check import forked\n"
    code += "print([(spin(2), forked.possible())[1] for _ in range(20)] == [True] * 20)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.stdout == "True\n"
