"""The ops of an answer as a test compares them."""

from __future__ import annotations

from typing import Any


def ids(ops: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(op["op"], op.get("id")) for op in ops]


def done(*names: str) -> list[tuple[str, str | None]]:
    return [("step_completed", name) for name in names]
