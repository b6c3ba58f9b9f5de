from __future__ import annotations

from importlib import metadata

import pytest

from sdpa_check import environment


@pytest.mark.parametrize("package", ["scipy", "numpy", "matplotlib"])
def test_the_version_of_a_package_is_that_of_its_metadata(package):
    assert environment._version(package) == metadata.version(package)


def test_where_no_folder_tells_the_version_the_metadata_are_asked(monkeypatch):
    monkeypatch.setattr(environment, "find_spec", lambda _: None)
    monkeypatch.setattr(metadata, "version", lambda name: f"that of {name}")
    assert environment._version("scipy") == "that of scipy"
