"""What holds for all tests of the repository, those of the SDK too."""

from __future__ import annotations

import gc
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes is a matter of the machine, which others use too.
settings.register_profile("runr", deadline=None)
settings.load_profile("runr")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: no look for garbage needs to walk it, and it is most of what there is."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Half a character that a test has logged cannot pass between the processes of pytest-xdist: write it out."""
    data = yield
    return _whole(data)


def _whole(data: Any) -> Any:
    if isinstance(data, str):
        return data.encode(errors="backslashreplace").decode()
    if isinstance(data, dict):
        return {_whole(name): _whole(value) for name, value in data.items()}
    if isinstance(data, list | tuple):
        return type(data)(map(_whole, data))
    return data
