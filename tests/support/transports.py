"""The two ways in which the engine and the code of a project reach one another: signed HTTP, and the worker stream."""

from __future__ import annotations

from typing import Literal, get_args

import pytest

Transport = Literal["http", "stream"]
TRANSPORTS: tuple[Transport, ...] = get_args(Transport)


def only_over(transport: Transport, *, because: str) -> pytest.MarkDecorator:
    """A story, or a module of them, that is told over one transport alone, for a reason."""
    assert because
    return pytest.mark.parametrize("transport", [transport])
