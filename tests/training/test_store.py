"""Finished trials in a file: what comes back is what went in, or nothing, or an error."""

from __future__ import annotations

import json
import math

import pytest

from sdpa_check.errors import InputError
from sdpa_check.training import store
from sdpa_check.training import trial as trials_
from sdpa_check.training.trial import Curve


@pytest.fixture
def saved(trial, tmp_path):
    """A file with a trial that went well and one that diverged."""
    curves = trials_.run([trial(steps=3), trial(steps=3, lr=0.1)], root_seed=3, jobs=1)
    curves[trial(steps=3, lr=9.0)] = Curve((1.0, math.inf, math.inf), (0.1, 2.0, math.inf))
    path = tmp_path / "deep" / "trials.json"
    store.dump(path, curves, 3)
    return path, curves


def test_every_bit_comes_back(saved):
    path, curves = saved
    assert store.load(path, 3) == curves
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert [each.name for each in path.parent.iterdir()] == ["trials.json"]


def test_another_root_seed_or_version_has_nothing_to_offer(saved, monkeypatch):
    path, _ = saved
    assert store.load(path, 4) == {}
    monkeypatch.setattr(store.sdpa_check, "__version__", "99")
    assert store.load(path, 3) == {}


def test_no_file_is_no_trial(tmp_path):
    assert store.load(tmp_path / "trials.json", 0) == {}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda _: "",
        lambda _: "[]",
        lambda _: "{}",
        lambda _: "\x00",
        lambda text: text.replace("trials/1", "trials/2"),
        lambda text: text.replace('"lr"', '"rate"'),
        lambda text: text.replace('"dk": 3', '"dk": 3, "dq": 3'),
        lambda text: text.replace('"steps": 3', '"steps": 4'),
        lambda text: text.replace('"steps": 3', '"steps": 0'),
        lambda text: text.replace('"steps": 3', '"steps": "3"'),
        lambda text: text.replace("null", '"x"'),
        lambda text: text.replace('"row": [', '"row": [1, '),
    ],
)
def test_a_damaged_file_is_named(saved, damage):
    path, _ = saved
    path.write_text(damage(path.read_text()))
    with pytest.raises(InputError) as caught:
        store.load(path, 3)
    assert str(path) in str(caught.value)


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path, saved):
    with pytest.raises(InputError, match="--out"):
        store.load(tmp_path, 0)  # a directory
    _, curves = saved
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="--out"):
        store.dump(tmp_path / "file" / "trials.json", curves, 0)
