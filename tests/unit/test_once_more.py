"""What has failed is tried once more, alone, and only a few of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.once_more import LAST_FAILED, MOST, once_more


def verdict(folder: Path, failed: Sequence[str]) -> int:
    (folder / "test_it.py").write_text("def test_good(): pass\ndef test_bad(): assert False\n")
    memory = folder / LAST_FAILED
    memory.parent.mkdir(parents=True)
    memory.write_text(json.dumps(dict.fromkeys(failed, True)))
    return once_more()


@pytest.mark.parametrize(
    ("failed", "code"),
    [
        (["test_it.py::test_good"], 0),
        (["test_it.py::test_good", "test_it.py::test_bad"], 1),
        (["test_it.py::test_good"] + [f"test_it.py::gone_{n}" for n in range(MOST)], 1),
        ([], 1),
    ],
)
def test_a_run_is_saved_by_few_that_pass_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failed: list[str], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    assert verdict(tmp_path, failed) == code


def test_where_nothing_is_remembered_nothing_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert once_more() == 1
