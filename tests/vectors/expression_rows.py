"""`expressions.json`: conditions and key values in environments, and texts made to break a parser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from services.core.domain.expression import (
    ExpressionError,
    condition_from_json,
    condition_holds,
    condition_to_json,
    evaluate,
    hash_value,
    index_key,
    is_true,
    key_text,
    parse,
    specialize,
    value_at,
)
from tests.vectors.check import Check, Unhandled, expect, outcome
from tests.vectors.prose import allowed, made_text


def checks(document: Any) -> Iterator[Check]:
    """Every row, through the engine."""
    environments = document.get("environments", {})
    for row in document["cases"]:
        environment = _environment(row["env"], environments)
        yield Check(row["id"], partial(_check_row, row, environment))
        if row.get("mode") != "value" and row["expected"] != "error":
            yield Check(f"{row['id']} [specialized]", partial(_check_specialized, row, environment))
    for row in document.get("generated_cases", []):
        yield Check(row["id"], partial(_check_generated, row, _environment("default", environments)))


def condition_value(text: object, environment: Mapping[str, Any]) -> bool | str:
    """The condition's value in an environment, "error" where the expression is refused."""
    found = outcome(
        lambda: is_true(evaluate(parse(text), event=environment.get("event"), async_=environment.get("async"))),
        ExpressionError,
    )
    assert isinstance(found, bool | str)
    return found


def _environment(name: Any, environments: Mapping[str, Any]) -> Mapping[str, Any]:
    """An environment by name, by name "without" one of its roots, or spelled out."""
    if not isinstance(name, str):
        return dict(name)
    base, _, without = name.partition(" without ")
    return {root: value for root, value in environments.get(base, {}).items() if root != without}


def _check_row(row: Any, environment: Mapping[str, Any]) -> None:
    if row.get("mode") != "value":
        expect(condition_value(row["expr"], environment), row["expected"])
        return
    event, async_ = environment.get("event"), environment.get("async")
    value: Any = outcome(lambda: evaluate(parse(row["expr"]), event=event, async_=async_), ExpressionError)
    expect(value, row["expected"])
    if value is not None and value != "error":
        text = key_text(value)
        others: list[Any] = [1, "1", True, "true", "all", 0, "", False, [], {}]
        assert all(text != key_text(other) for other in others if type(other) is not type(value) or other != value)


def _check_specialized(row: Any, environment: Mapping[str, Any]) -> None:
    """What a wait keeps of the condition decides as the expression does, and its index key finds the event."""
    incoming = environment.get("async")
    condition = specialize(parse(row["expr"]), environment.get("event"))
    expect(condition_holds(condition_from_json(condition_to_json(condition)), incoming), row["expected"])
    key = index_key(condition)
    if key is not None and row["expected"]:
        path, value_hash = key
        expect(hash_value(value_at(path, incoming)), value_hash)


def _check_generated(row: Any, environment: Mapping[str, Any]) -> None:
    text, environment = _generated(row, environment)
    verdicts = allowed(row["expected"])
    if not verdicts:
        verdicts = _said_of_deep_data(row["expected"])
    found = condition_value(text, environment)
    shown = found if isinstance(found, str) else str(found).lower()
    assert shown in verdicts, f"expected {row['expected']}, got {shown}"


def _generated(row: Any, environment: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The expression of a generated row, and its environment: "env: data nested N objects deep, expr …" or a `make`."""
    n = row.get("n", 0)
    nested = re.fullmatch(r"env: data nested ([0-9]+) (objects|lists) deep, expr (.+)", row["make"])
    if nested is None:
        return made_text(row["make"], {"n": n}), environment
    data: Any = {}
    for _ in range(int(nested[1])):
        data = {"a": data} if nested[2] == "objects" else [data]
    return nested[3], {"event": {"name": "x", "data": data if isinstance(data, dict) else {"a": data}}}


def _said_of_deep_data(words: str) -> frozenset[str]:
    if "refuses" in words or "evaluated" in words:
        return frozenset(("error", "true", "false"))
    raise Unhandled(words)
