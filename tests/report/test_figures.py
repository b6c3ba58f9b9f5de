"""Figures as plain data: what they hold, what they refuse, and the way to JSON and back."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdpa_check.errors import InputError
from sdpa_check.report.figures import (
    SCHEMA,
    Figure,
    HeatMap,
    Panel,
    Series,
    Span,
    from_json,
    to_json,
    values,
)

_FIGURE = Figure(
    title="√d and ‖J‖",
    panels=(
        Panel(
            title="one",
            xlabel="dₖ",
            ylabel="H (nats)",
            xscale="log2",
            yscale="log",
            ylim=(1e-3, 2.0),
            series=(
                Series(label="a", kind="points", x=(1.0, 2.0), y=(0.1, None), lo=(0, 0), hi=(1, 1)),
                Series(label="", kind="steps", x=(0.0, 1.0, 2.0), y=(3.0, 0.0)),
            ),
            spans=(Span(axis="y", lo=0.5, hi=None, label="above"),),
            heatmap=HeatMap(
                x=(1.0, 2.0),
                y=(3.0,),
                z=((0.25, None),),
                label="H",
                limits=(0.0, 1.0),
                marks=((1.0, 3.0, 0.2),),
            ),
        ),
        Panel(rows=("first", "second")),
    ),
    columns=2,
    caption="how to read it",
)

_finite = st.floats(allow_nan=False, allow_infinity=False)


def _numbers(size):
    return st.tuples(*[st.none() | _finite] * size)


@st.composite
def _series(draw):
    kind = draw(st.sampled_from(["points", "rings", "curve", "guide", "steps"]))
    size = draw(st.integers(0, 4))
    ends = draw(st.sampled_from([0, size]))
    return Series(
        label=draw(st.text()),
        kind=kind,
        x=draw(_numbers(size + (kind == "steps"))),
        y=draw(_numbers(size)),
        lo=draw(_numbers(ends)),
        hi=draw(_numbers(ends)),
    )


@given(st.lists(_series(), max_size=3), st.text(), st.text())
def test_any_series_comes_back_from_json_as_it_was(series, name, title):
    figures = {name: Figure(title=title, panels=(Panel(series=tuple(series)),))}
    assert from_json(to_json(figures), "f.json") == figures


def test_every_field_comes_back_from_json():
    assert from_json(to_json({"f": _FIGURE}), "f.json") == {"f": _FIGURE}


def test_json_is_strict_and_versioned():
    def refuse(constant):
        raise AssertionError(constant)

    document = json.loads(to_json({"f": _FIGURE}), parse_constant=refuse)
    assert document["schema"] == SCHEMA


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_without_a_json_form_is_refused(number):
    series = Series(label="a", kind="curve", x=(0.0,), y=(number,))
    with pytest.raises(InputError, match="finite numbers or None"):
        to_json({"f": Figure(title="", panels=(Panel(series=(series,)),))})


def test_values_puts_none_for_what_is_not_finite():
    got = values(np.array([1, np.nan, np.inf, -np.inf, 0.1]))
    assert got == (1.0, None, None, None, 0.1)
    assert all(number is None or type(number) is float for number in got)
    assert values([2, None]) == (2.0, None)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"x": (1.0,)}, "x: got '1 entries', want 2 entries"),
        ({"kind": "steps"}, "x: got '2 entries', want 3 entries"),
        ({"lo": (0.0, 0.0)}, "hi: got '0 entries', want 2 entries"),
        ({"lo": (0.0,), "hi": (1.0, 1.0)}, "lo: got '1 entries', want 2 entries"),
    ],
)
def test_a_series_refuses_arrays_of_unequal_length(fields, place):
    with pytest.raises(InputError, match=place):
        Series(**{"label": "", "kind": "points", "x": (1.0, 2.0), "y": (1.0, 2.0)} | fields)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"x": ()}, "x"),
        ({"x": (2.0, 1.0)}, "x"),
        ({"y": (1.0, 1.0)}, "y"),
        ({"z": ((1.0, 2.0), (1.0, 2.0))}, "z"),
        ({"z": ((1.0,),)}, r"z\[0\]"),
    ],
)
def test_a_map_refuses_a_grid_that_is_none(fields, place):
    with pytest.raises(InputError, match=f"^{place}: "):
        HeatMap(**{"x": (1.0, 2.0), "y": (1.0,), "z": ((1.0, 2.0),), "label": ""} | fields)


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"xscale": "log", "xlim": (0.0, 1.0)}, "xscale"),
        ({"yscale": "log2", "spans": (Span(axis="y", lo=None, hi=-1.0),)}, "yscale"),
        (
            {"xscale": "log", "heatmap": HeatMap(x=(0.0,), y=(1.0,), z=((1.0,),), label="")},
            "xscale",
        ),
    ],
)
def test_a_log_axis_refuses_limits_that_it_cannot_show(fields, place):
    with pytest.raises(InputError, match=place):
        Panel(**fields)
    Panel(**fields | {place: "linear"})


@pytest.mark.parametrize("fields", [{"panels": ()}, {"columns": 0}])
def test_a_figure_refuses_to_be_empty(fields):
    with pytest.raises(InputError):
        Figure(**{"title": "", "panels": (Panel(),)} | fields)


def _document():
    return json.loads(to_json({"f": _FIGURE}))


def _set(document, path, value):
    *parents, last = path
    for key in parents:
        document = document[key]
    document[last] = value


_SERIES = ("figures", "f", "panels", 0, "series", 0)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("schema",), "other/1", "file: schema: got 'other/1', want sdpa-check/figures/1"),
        (("figures",), [], "file: figures: got []"),
        (("figures", "f"), 3, "file: f: got 3, want an object"),
        (("figures", "f", "title"), 3, "file: f.title: got 3, want a text"),
        (("figures", "f", "columns"), 1.5, "file: f.columns: got 1.5, want a whole number"),
        (("figures", "f", "columns"), True, "file: f.columns: got True, want a whole number"),
        (("figures", "f", "columns"), 0, "file: f.columns: got 0"),
        (("figures", "f", "colour"), "red", "file: f.colour: got 'red', want one of title"),
        (("figures", "f", "panels"), {}, "file: f.panels: got {}, want a list"),
        ((*_SERIES, "kind"), "blob", "file: f.panels[0].series[0].kind: got 'blob', want one of"),
        ((*_SERIES, "kind"), [], "file: f.panels[0].series[0].kind: got [], want one of"),
        ((*_SERIES, "y", 1), "a", "file: f.panels[0].series[0].y[1]: got 'a', want a number"),
        ((*_SERIES, "y", 1), True, "file: f.panels[0].series[0].y[1]: got True, want a number"),
        ((*_SERIES, "y"), [1], "file: f.panels[0].series[0].x: got '2 entries', want 1 entries"),
        (
            ("figures", "f", "panels", 0, "ylim"),
            [1],
            "file: f.panels[0].ylim: got [1], want a list",
        ),
        (("figures", "f", "panels", 0, "heatmap", "x", 0), None, "heatmap.x[0]: got None"),
    ],
)
def test_a_malformed_file_is_refused_by_the_place_that_is_wrong(path, value, message):
    document = _document()
    _set(document, path, value)
    with pytest.raises(InputError) as caught:
        from_json(json.dumps(document), "file")
    assert message in str(caught.value)


def test_a_missing_field_is_named():
    document = _document()
    del document["figures"]["f"]["panels"][0]["series"][1]["y"]
    with pytest.raises(InputError, match=r"f\.panels\[0\]\.series\[1\]: .*want the field y"):
        from_json(json.dumps(document), "file")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "1" + "0" * 400])
def test_a_number_beyond_the_floats_is_refused(number):
    text = to_json({"f": _FIGURE}).replace('"y":[0.1,', f'"y":[{number},')
    with pytest.raises(InputError, match=r"series\[0\]\.y\[0\]: .*want a number"):
        from_json(text, "file")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", "[" * 100_000, '{"figures": {}}'])
def test_a_text_that_is_no_figure_file_is_refused(text):
    with pytest.raises(InputError, match=r"^file"):
        from_json(text, "file")


def _paths(node, path=()):
    children = enumerate(node) if isinstance(node, list) else ()
    for key, child in node.items() if isinstance(node, dict) else children:
        yield (*path, key)
        yield from _paths(child, (*path, key))


def _complaint(text):
    """What the reader says of a text, or None where it accepts it."""
    try:
        from_json(text, "file")
    except InputError as error:
        return str(error)
    return None


def test_no_damage_to_a_file_escapes_as_another_error():
    whole = _document()
    complaints = []
    for path in _paths(whole):
        for junk in (None, True, -1, 1e300, "x", [], [[]], {}, {"x": 1}):
            document = copy.deepcopy(whole)
            _set(document, path, junk)
            complaints.append(_complaint(json.dumps(document)))
    refused = [complaint for complaint in complaints if complaint is not None]
    assert all(complaint.startswith("file: ") for complaint in refused)
    assert len(refused) > len(complaints) / 2
