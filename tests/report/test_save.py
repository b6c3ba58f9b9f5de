from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sdpa_check.errors import InputError
from sdpa_check.report.save import check_writable, save

FILES = {"run.json": "{‖}\n", "table.csv": "a,b\r\n", "plot.png": b"\x89PNG\r\n"}


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


WRITTEN = {name: data.encode() if isinstance(data, str) else data for name, data in FILES.items()}


def test_files_are_written_byte_for_byte(tmp_path):
    directory = tmp_path / "a" / "b"
    save(directory, FILES)
    assert contents(directory) == WRITTEN


def test_files_have_the_usual_permissions(tmp_path):
    (tmp_path / "usual").touch()
    save(tmp_path, FILES)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


def test_files_replace_older_ones_and_leave_others_alone(tmp_path):
    (tmp_path / "run.json").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    save(tmp_path, FILES)
    assert contents(tmp_path) == {**WRITTEN, "notes.txt": b"mine"}


def test_run_json_is_put_in_place_last(tmp_path, monkeypatch):
    order = []
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda a, b: (order.append(b.name), replace(a, b)))
    save(tmp_path, FILES)
    assert sorted(order) == sorted(FILES)
    assert order[-1] == "run.json"


def test_nothing_is_replaced_before_everything_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "replace", lambda *_: pytest.fail("replaced too early"))
    with pytest.raises(TypeError):
        save(tmp_path, {"table.csv": "new", "run.json": None})
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("failing", ["plot.png", "run.json"])
def test_a_failed_save_leaves_everything_as_it_was(tmp_path, monkeypatch, error, failing):
    old = {"table.csv": b"old csv", "run.json": b"old run"}
    for name, data in old.items():
        (tmp_path / name).write_bytes(data)
    _fail_at(monkeypatch, failing, error)
    with pytest.raises((InputError, KeyboardInterrupt)) as caught:
        save(tmp_path, FILES)
    assert contents(tmp_path) == old
    if isinstance(caught.value, InputError):
        assert caught.value.where == "--out"
        assert caught.value.hint == "No space left on device"


def test_a_failed_save_removes_the_directories_that_it_made(tmp_path, monkeypatch):
    _fail_at(monkeypatch, "run.json", OSError(28, "No space left on device"))
    with pytest.raises(InputError):
        save(tmp_path / "a" / "b", FILES)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_the_place_of_a_file(tmp_path):
    (tmp_path / "run.json").mkdir()
    (tmp_path / "table.csv").write_text("old")
    with pytest.raises(InputError, match="directory"):
        save(tmp_path, FILES)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "table.csv"]
    assert (tmp_path / "table.csv").read_text() == "old"


@pytest.mark.parametrize("function", [check_writable, lambda path: save(path, FILES)])
@pytest.mark.parametrize("place", ["file", "file/below", "file/below/deep", "x" * 300, "link"])
def test_what_cannot_be_a_directory_is_refused(tmp_path, function, place):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError) as caught:
        function(tmp_path / place)
    assert (caught.value.where, caught.value.got) == ("--out", str(tmp_path / place))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("function", [check_writable, lambda path: save(path, FILES)])
def test_a_directory_without_permission_is_refused(function):
    if not Path("/proc/self").exists():
        pytest.skip("needs a file system that even root cannot write to")
    with pytest.raises(InputError):
        function(Path("/proc/sdpa-check/out"))


def test_check_writable_leaves_nothing(tmp_path):
    (tmp_path / "mine").touch()
    check_writable(tmp_path)
    check_writable(tmp_path / "a" / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_relative_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_writable(Path("out/x"))
    assert list(tmp_path.iterdir()) == []
    save(Path("out/x"), FILES)
    assert contents(tmp_path / "out" / "x") == WRITTEN


def test_two_saves_into_one_directory_do_not_share_temporaries(tmp_path, monkeypatch):
    names = set()
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda a, b: (names.add(a.name), replace(a, b)))
    save(tmp_path, FILES)
    save(tmp_path, FILES)
    assert len(names) == 2 * len(FILES)


def _fail_at(monkeypatch, name: str, error: BaseException) -> None:
    replace = Path.replace

    def failing(source: Path, target: Path) -> Path:
        if target.name == name:
            raise error
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", failing)
