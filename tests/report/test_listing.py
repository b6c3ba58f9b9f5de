from __future__ import annotations

import pytest

from sdpa_check.report import listing

LINES = [["a", "first", "one two three four"], ["bb", "second", "five"]]


def test_the_last_cell_wraps_in_its_column():
    assert list(listing.columns(LINES, 36)) == [
        "a   first   one two three four",
        "bb  second  five",
    ]
    long = [["a", "b", "word " * 12]]
    wrapped = list(listing.columns(long, 40))
    assert wrapped[0].startswith("a  b  word")
    assert all(line.startswith("      word") for line in wrapped[1:])


def test_without_room_the_last_cell_stands_below():
    assert list(listing.columns(LINES, 30)) == [
        "a   first",
        "    one two three four",
        "bb  second",
        "    five",
    ]


def test_neighbours_share_a_heading():
    lines = [["a", "1"], ["b", "2"], ["c", "3"]]
    assert list(listing.columns(lines, 80, above=["X", "X", "Y"])) == [
        "X",
        "  a  1",
        "  b  2",
        "Y",
        "  c  3",
    ]


def test_facts_stand_beside_their_labels():
    assert list(listing.facts({"a": ["one"], "longer": ["two", "three"]}, 80)) == [
        "a       one",
        "longer  two",
        "        three",
    ]
    assert list(listing.facts({}, 80)) == []


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_lines_fit(width):
    long = [["an-id", "confirmed", "word " * 60]]
    pairs = {"label": ["word " * 60]}
    for lines in (listing.columns(long, width), listing.facts(pairs, width)):
        assert max(map(len, lines)) <= width
    assert max(map(len, listing.prose("word " * 60, width))) <= width
