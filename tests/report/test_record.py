from __future__ import annotations

import copy
import dataclasses
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdpa_check.errors import InputError
from sdpa_check.records import ClaimText, Component, Estimate, Prediction, Row, Run
from sdpa_check.report import record

if TYPE_CHECKING:
    from collections.abc import Iterator

jsonschema = pytest.importorskip("jsonschema")

VALIDATOR = jsonschema.Draft202012Validator(record.schema())

SEEDED = settings(
    derandomize=True,
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # the fixtures are frozen
)


def test_the_schema_is_one_and_every_run_keeps_to_it(mixed, sweep, judged):
    jsonschema.Draft202012Validator.check_schema(record.schema())
    for run in (mixed, sweep, judged, dataclasses.replace(sweep, rows=(), notes=())):
        VALIDATOR.validate(json.loads(record.dumps(run)))


def test_there_and_back(mixed, sweep, judged):
    for run in (mixed, sweep, judged):
        text = record.dumps(run)
        assert record.loads(text, "run.json") == run
        assert record.loads(text.encode(), "run.json") == run
        assert record.dumps(record.loads(text, "run.json")) == text
        assert record.from_dict(record.to_dict(run), "run.json") == run


def test_keys_stand_in_the_order_of_the_format(mixed):
    document = json.loads(record.dumps(mixed))
    row = document["rows"][0]
    assert ", ".join(document) == (
        "schema, command, version, outcome, exit_code, design, seed, generator, "
        "rows, notes, environment"
    )
    assert ", ".join(row) == (
        "id, quantity, params, estimate, prediction, verdict, expected, reason, "
        "tolerance, detectable, claim"
    )
    assert ", ".join(row["estimate"]) == "value, se, lo, hi, level, blocks, samples, withheld"
    assert ", ".join(row["prediction"]) == "value, kind, source, relation"
    assert row["claim"] is None
    assert document["rows"][6]["estimate"] is None


def test_what_a_document_says_is_part_of_the_row(judged):
    row = json.loads(record.dumps(judged))["rows"][2]
    assert row["claim"] == {
        "statement": "the unscaled Jacobian is smaller",
        "source": "B",
        "section": "1.4",
        "right": "it is larger: 0.271 against 0.185",
        "note": "",
    }
    assert row["prediction"]["relation"] == "at most"
    assert row["params"]["versus"] == {"scale": "sqrt"}


def test_text_is_readable_and_ends_with_a_newline(mixed):
    text = record.dumps(mixed)
    assert text.startswith('{\n "schema": "sdpa-check/run/1",\n "command": "verify",\n')
    assert text.endswith("}\n")
    assert "‖J‖_F" in text


@SEEDED
@given(x=st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_comes_back_to_the_last_bit(sweep, x):
    back = record.loads(record.dumps(_with_value(sweep, x)), "run.json").rows[0].estimate.value
    assert (back, math.copysign(1, back)) == (x, math.copysign(1, x))


def test_what_is_not_finite_becomes_null(sweep):
    bad = [math.nan, math.inf, -math.inf]
    row = dataclasses.replace(
        sweep.rows[0],
        params={"levels": bad},
        estimate=dataclasses.replace(sweep.rows[0].estimate, value=math.nan, se=math.inf),
        prediction=Prediction(value=math.inf, kind="infinite", source=""),
        tolerance=math.inf,
    )
    run = dataclasses.replace(sweep, rows=(row,), environment={"a": {"b": bad}})
    text = record.dumps(run)
    document = json.loads(text, parse_constant=pytest.fail)
    assert document["environment"] == {"a": {"b": [None, None, None]}}
    read = record.loads(text, "run.json").rows[0]
    assert math.isnan(read.estimate.value)
    assert (read.estimate.se, read.prediction.value, read.tolerance) == (None, None, None)
    assert record.dumps(record.loads(text, "run.json")) == text


def test_numbers_of_numpy_tuples_and_records_are_written(sweep):
    design = {
        "dk": (np.int64(8), np.uint8(64)),
        "sigma": np.float32(0.5),
        "query": Component(distribution="t", df=5.0),
        "file": "\udcff.toml",
    }
    written = json.loads(record.dumps(dataclasses.replace(sweep, design=design)))["design"]
    assert written["dk"] == [8, 64]
    assert written["sigma"] == 0.5
    assert written["query"]["df"] == 5.0
    assert written["file"] == "\\udcff.toml"


def test_what_has_no_json_form_is_named(sweep):
    with pytest.raises(TypeError, match="range"):
        record.dumps(dataclasses.replace(sweep, design={"dk": range(3)}))


MALFORMED: list[tuple[str, object, str]] = [
    ("command", 5, "a text"),
    ("exit_code", "0", "a whole number"),
    ("exit_code", True, "a whole number"),
    ("seed", -1, "a whole number"),
    ("seed", 0.5, "a whole number"),
    ("design", [], "an object"),
    ("environment", None, "an object"),
    ("notes", "a", "a list"),
    ("notes[0]", 3, "a text"),
    ("rows", {}, "a list"),
    ("rows[0]", None, "an object"),
    ("rows[1].id", None, "a text"),
    ("rows[1].params", [1], "an object"),
    ("rows[3].verdict", "failed", "one of confirmed, refuted"),
    ("rows[3].expected", ["confirmed"], "one of confirmed, refuted"),
    ("rows[3].estimate", 3, "an object"),
    ("rows[3].estimate.se", "0.1", "a number of at least 0 or null"),
    ("rows[3].estimate.se", -0.1, "a number of at least 0 or null"),
    ("rows[3].estimate.value", True, "a number or null"),
    ("rows[3].estimate.level", 0, "a number above 0"),
    ("rows[3].estimate.level", 1.5, "a number above 0 and of at most 1"),
    ("rows[3].estimate.level", None, "a number above 0"),
    ("rows[3].estimate.blocks", 1.5, "a whole number"),
    ("rows[3].estimate.samples", None, "a whole number"),
    ("rows[3].estimate.withheld", None, "a text"),
    ("rows[3].prediction", None, "an object"),
    ("rows[3].prediction.kind", "guessed", "one of exact, stated, limit"),
    ("rows[3].prediction.value", [], "a number or null"),
    ("rows[3].prediction.relation", "about", "one of equal, at least, at most"),
    ("rows[3].tolerance", -1, "a number of at least 0 or null"),
    ("rows[3].claim", "a text", "an object"),
]


@pytest.mark.parametrize(("path", "value", "want"), MALFORMED)
def test_an_error_names_place_got_and_wanted(mixed, path, value, want):
    document = record.to_dict(mixed)
    _put(document, path, value)
    with pytest.raises(InputError) as caught:
        record.loads(json.dumps(document), "old/run.json")
    assert caught.value.where == f"old/run.json: {path}"
    assert caught.value.got == value
    assert caught.value.want.startswith(want)
    assert not VALIDATOR.is_valid(document)


def test_what_a_document_says_is_text(judged):
    document = record.to_dict(judged)
    _put(document, "rows[0].claim.section", 1.2)
    with pytest.raises(InputError, match="a text") as caught:
        record.from_dict(document, "run.json")
    assert caught.value.where == "run.json: rows[0].claim.section"
    assert not VALIDATOR.is_valid(document)


def test_a_number_that_was_computed_has_the_level_one(judged):
    document = record.to_dict(judged)
    assert document["rows"][3]["estimate"]["level"] == 1
    assert record.from_dict(document, "run.json") == judged


def test_every_key_is_needed_and_no_other_is_allowed(mixed, judged):
    row = dataclasses.replace(mixed.rows[0], claim=judged.rows[0].claim)
    mixed = dataclasses.replace(mixed, rows=(row, *mixed.rows[1:]))
    document = record.to_dict(mixed)
    objects = {path: node for path, node in _nodes(document, "") if _is_record(path, node)}
    # Run, rows, estimates (one is null), predictions, and one claim.
    assert len(objects) == 1 + 7 + 6 + 7 + 1
    for path, node in objects.items():
        for key in list(node):
            changed = copy.deepcopy(document)
            del _get(changed, path)[key]
            _assert_refused(changed, f"{path}.{key}".lstrip("."))
        changed = copy.deepcopy(document)
        _get(changed, path)["extra"] = 1
        _assert_refused(changed, f"{path}.extra".lstrip("."))


@SEEDED
@given(data=st.data())
def test_reader_and_schema_agree(mixed, data):
    """Whatever stands in the place of any value: one refuses it exactly where the other does."""
    document = record.to_dict(mixed)
    places = [path for path, _ in _nodes(document, "") if path]
    path = data.draw(st.sampled_from(places))
    other = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.floats(-2, 2),
        st.sampled_from(["", "confirmed", "exact", "not run"]),
        st.just([]),
        st.just({}),
    )
    _put(document, path, data.draw(other))
    try:
        record.loads(json.dumps(document), "run.json")
        accepted = True
    except InputError:
        accepted = False
    assert accepted == VALIDATOR.is_valid(document)


@pytest.mark.parametrize("version", ["sdpa-check/run/2", None, 1])
def test_another_version_is_refused_with_the_one_that_is_read(mixed, version):
    document = record.to_dict(mixed) | {"schema": version}
    with pytest.raises(InputError, match="sdpa-check/run/1") as caught:
        record.from_dict(document, "run.json")
    assert (caught.value.where, caught.value.got) == ("run.json: schema", version)


@pytest.mark.parametrize("data", [[], 3, None, "text"])
def test_what_is_no_object_is_refused(data):
    with pytest.raises(InputError, match="an object") as caught:
        record.from_dict(data, "run.json")
    assert caught.value.where == "run.json"


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "Expecting value"),
        ('{"schema": NaN}', "the number NaN"),
        ('{"seed": 1e999}', "the number 1e999"),
        ('{"seed": 1, "seed": 2}', "the key 'seed' twice"),
        ("[" * 100_000, "recursion"),
        (b"\xff\xfe\xff", "decode"),
    ],
)
def test_what_is_no_strict_json_is_refused(text, got):
    with pytest.raises(InputError, match="strict JSON") as caught:
        record.loads(text, "run.json")
    assert got in str(caught.value.got)


def test_an_integer_beyond_the_floats_is_no_number(mixed):
    document = record.to_dict(mixed)
    _put(document, "rows[0].estimate.value", 10**400)
    with pytest.raises(InputError, match="a number or null"):
        record.from_dict(document, "run.json")


def test_the_format_has_a_field_for_everything_in_the_records():
    """A field added to a record without a new version of the format would break old files."""
    defined = record.schema()["$defs"]
    for cls, required in (
        (Run, record.schema()["required"][1:]),
        (Row, defined["row"]["required"]),
        (Estimate, defined["estimate"]["required"]),
        (Prediction, defined["prediction"]["required"]),
        (ClaimText, defined["claim"]["required"]),
    ):
        assert [field.name for field in dataclasses.fields(cls)] == required


def _with_value(run: Run, x: float) -> Run:
    found = dataclasses.replace(run.rows[0].estimate, value=x)
    return dataclasses.replace(run, rows=(dataclasses.replace(run.rows[0], estimate=found),))


def _nodes(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value of a document with its path, but what lies below a free-form object."""
    yield path, node
    if path.endswith(("design", "params", "environment")):
        return
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _nodes(value, f"{path}.{key}".lstrip("."))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _nodes(value, f"{path}[{index}]")


def _is_record(path: str, node: Any) -> bool:
    return isinstance(node, dict) and not path.endswith(("design", "params", "environment"))


def _steps(path: str) -> list[str | int]:
    parts = path.replace("[", ".[").split(".") if path else []
    return [int(part[1:-1]) if part.startswith("[") else part for part in parts]


def _get(document: Any, path: str) -> Any:
    for step in _steps(path):
        document = document[step]
    return document


def _put(document: Any, path: str, value: object) -> None:
    *before, last = _steps(path)
    for step in before:
        document = document[step]
    document[last] = value


def _assert_refused(document: Any, path: str) -> None:
    assert not VALIDATOR.is_valid(document), path
    with pytest.raises(InputError) as caught:
        record.from_dict(document, "run.json")
    assert caught.value.where == f"run.json: {path}"


def test_a_stopped_run_has_its_outcome_and_its_exit_code(mixed):
    stopped = dataclasses.replace(mixed, outcome="stopped", exit_code=130)
    VALIDATOR.validate(record.to_dict(stopped))
    assert record.loads(record.dumps(stopped), "run.json").stopped
    assert not record.loads(record.dumps(mixed), "run.json").stopped


@pytest.mark.parametrize(("outcome", "code"), [("stopped", 0), ("as expected", 130)])
def test_neither_stands_without_the_other(mixed, outcome, code):
    document = record.to_dict(dataclasses.replace(mixed, outcome=outcome, exit_code=code))
    assert not VALIDATOR.is_valid(document)
    with pytest.raises(InputError, match="130 for a run that was stopped") as caught:
        record.from_dict(document, "run.json")
    assert caught.value.where == "run.json: exit_code"


def test_a_row_alone_there_and_back(mixed):
    for row in mixed.rows:
        data = json.loads(json.dumps(record.row_to_dict(row)))
        assert record.row_from_dict(data, "partial.npz") == row
    del data["verdict"]
    with pytest.raises(InputError, match=r"partial.npz: row.verdict"):
        record.row_from_dict(data, "partial.npz")
