"""stdout carries the result alone, in the format that was asked for."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from pathlib import Path

import jsonschema
import pytest
from junitparser import JUnitXml

from sdpa_check.cli import run
from sdpa_check.report.record import schema

LINES = ["variance --dk 4,8 --samples 4096", "saturation --dk 4 --keys 8 --samples 4096"]
QUICK = "variance --dk 4 --dist rademacher --samples 4096"


@pytest.fixture(scope="module", params=LINES)
def line(request):
    return request.param


@pytest.fixture(scope="module")
def record(line):
    """The record of `line`, which every format has to show."""
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        run([*line.split(), "--no-save", "--format", "json"])
    return json.loads(stream.getvalue())


def test_json_is_what_run_json_holds_and_obeys_the_schema(invoke, line):
    result = invoke(f"{line} --no-plot --format json --out here")
    assert result.out == Path("here/run.json").read_text(encoding="utf-8")
    record = result.record()
    jsonschema.Draft202012Validator(schema()).validate(record)
    assert record["command"] == line.split()[0]
    assert record["exit_code"] == result.code
    assert record["rows"]


def test_the_schema_refuses_another_record(invoke):
    record = invoke(f"{QUICK} --no-save --format json").record()
    record["rows"][0]["verdict"] = "certain"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema()).validate(record)


def test_csv_has_a_line_per_row_with_every_digit(invoke, line, record):
    result = invoke(f"{line} --no-plot --format csv --out here")
    assert result.out == Path("here/table.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert [row["id"] for row in rows] == [row["id"] for row in record["rows"]]
    values = [row["estimate"]["value"] for row in record["rows"]]
    assert [float(row["value"]) for row in rows] == values


def test_md_is_a_table_with_a_line_per_row(invoke, line, record):
    result = invoke(f"{line} --no-plot --format md --out here")
    assert result.out == Path("here/table.md").read_text(encoding="utf-8")
    tables = [part.splitlines() for part in result.out.split("\n\n") if part.startswith("|")]
    for table in tables:
        assert len({len(re.findall(r"(?<!\\)\|", text)) for text in table}) == 1
    judged = [row for row in record["rows"] if row["prediction"]["value"] is not None]
    assert len(tables[0]) == 2 + len(judged)
    assert record["outcome"] in result.out


def test_junit_has_a_case_per_row(invoke, tmp_path, line, record):
    result = invoke(f"{line} --no-save --format junit")
    (tmp_path / "junit.xml").write_text(result.out, encoding="utf-8")
    (suite,) = JUnitXml.fromfile(str(tmp_path / "junit.xml"))
    assert [case.name for case in suite] == [row["id"] for row in record["rows"]]
    off = [row for row in record["rows"] if row["verdict"] != row["expected"]]
    assert suite.failures == len(off)


def test_the_table_shows_every_number(invoke, line, record):
    result = invoke(f"{line} --no-save")
    assert result.out.startswith(line.split()[0])
    assert record["outcome"] in result.out
    for row in record["rows"]:
        measured_only = row["prediction"]["value"] is None
        assert row["quantity"].partition(".")[2 * measured_only] in result.out


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "junit"])
def test_stderr_is_apart_and_says_where_files_are(invoke, form):
    result = invoke(f"{QUICK} --no-plot --format {form}")
    assert result.err == f"files: {Path('outputs/variance')}\n"
    assert "files:" not in result.out
    assert result.out.endswith("\n")
    assert "\x1b" not in result.out


def test_no_format_changes_the_numbers_or_the_exit_code(invoke):
    line = f"{QUICK} --no-save --format"
    codes = {invoke(f"{line} {form}").code for form in ("table", "json", "csv", "md", "junit")}
    assert codes == {4}  # 4096 dot products settle nothing at 1 %


class TestSeed:
    LINE = "--no-save --format json --seed"
    DESIGNS = (
        "variance --dk 4,8 --scale all --samples 2e6",
        "variance --dk 4 --dist t --df 3 --samples 4096",
        "saturation --dk 16 --keys 8 --samples 20000",
    )

    @pytest.mark.parametrize("design", DESIGNS)
    def test_numbers_do_not_depend_on_jobs(self, invoke, design):
        runs = [invoke(f"{design} {self.LINE} 5 --jobs {jobs}") for jobs in (1, 2, 4)]
        assert runs[0].numbers() == runs[1].numbers() == runs[2].numbers()

    @pytest.mark.parametrize("design", DESIGNS)
    def test_another_seed_gives_other_numbers(self, invoke, design):
        one, other = (invoke(f"{design} {self.LINE} {seed}").numbers() for seed in (5, 6))
        assert (one["seed"], other["seed"]) == (5, 6)
        for a, b in zip(one["rows"], other["rows"], strict=True):
            assert a["prediction"] == b["prediction"]
        different = [
            a["estimate"]["value"] != b["estimate"]["value"]
            for a, b in zip(one["rows"], other["rows"], strict=True)
        ]
        # counts of rare events and the largest possible values may agree
        assert sum(different) > 0.8 * len(different)

    def test_a_random_seed_is_recorded_and_can_be_used_again(self, invoke):
        line = f"{QUICK} {self.LINE}"
        first, second = invoke(f"{line} random"), invoke(f"{line} random")
        # two draws from 2^31 agree with probability 5e-10
        assert first.record()["seed"] != second.record()["seed"]
        again = invoke(f"{line} {first.record()['seed']}")
        assert again.numbers() == first.numbers()

    def test_a_process_of_its_own_gives_the_same_numbers(self, invoke, command):
        line = f"variance --dk 4,64 --samples 1e5 {self.LINE} 3"
        here, there = invoke(line), command(line)
        assert there.err == ""
        assert here.code == there.code
        # BLAS may run on several threads here, which rounds sums in another order
        pairs = zip(here.record()["rows"], there.record()["rows"], strict=True)
        for a, b in pairs:
            assert a["estimate"]["value"] == pytest.approx(
                b["estimate"]["value"], rel=1e-5, abs=1e-5
            )
