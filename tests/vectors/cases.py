"""`cases.jsonl`: cases across the product. Those about pure rules run here; the rest need a running engine."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from runr_workflows import Context, Step

from services.core.domain.duration import DurationError, parse_duration
from services.core.domain.errors import InvalidInput
from services.core.domain.expression import evaluate, key_text, parse
from services.core.domain.retry import backoff_ms
from services.core.domain.workflow import validate_definitions
from tests.vectors import cron_rows, signature_rows
from tests.vectors.check import Check, Unhandled, expect, outcome
from tests.vectors.expression_rows import condition_value
from tests.vectors.sdk_python import invoke_with, run_to_end


def checks(rows: Any) -> Iterator[Check]:
    """Every row that is told by its area and input; a row that is not is Unhandled."""
    for row in rows:
        yield Check(row["id"], partial(_check, row))


def _check(row: Any) -> None:
    by_id = _BY_ID.get(row["id"])
    if by_id is not None:
        by_id(row)
        return
    given = row.get("input", {})
    for area, needed, judge in _BY_SHAPE:
        if row["area"] == area and needed <= given.keys():
            judge(row, given)
            return
    raise Unhandled("needs a running engine")


def _cron(row: Any, given: Mapping[str, Any]) -> None:
    cron_rows.check_row({**given, "expected": row["expected"]})


def _refused_definition(row: Any, given: Mapping[str, Any]) -> None:
    expect(row["expected"], {"sync": "refused"})
    with pytest.raises(InvalidInput) as refused:
        validate_definitions([{"name": "w", **given}], strict_unknown=False)
    (fault,) = refused.value.errors
    assert fault.path.startswith("workflows[0].triggers[0]")
    for quoted in ("workflow w", *re.findall(r'"([^"]+)"', row["then"])):
        assert quoted in fault.message


def _key_types(row: Any, given: Mapping[str, Any]) -> None:
    """Runs without a key are not deduplicated; as a slot, no key is one value."""
    tree = parse("event.data.k")
    datas = [{} if k == "<missing>" else {"k": k} for k in given["k"]]
    keys = [key_text(evaluate(tree, event={"data": data})) for data in datas]
    expect(len({key for key in keys if key is not None}) + keys.count(None), row["expected"]["runs"])
    expect(len(set(keys)), row["expected"]["concurrency_slots"])


def _one_expression(row: Any, given: Mapping[str, Any]) -> None:
    environment = {root: {"data": given[f"{root}.data"]} for root in ("event", "async") if f"{root}.data" in given}
    expect(condition_value(given["expr"], environment), row["expected"])


def _backoff(row: Any, given: Mapping[str, Any]) -> None:
    for index, n in enumerate(given["n"]):
        for name, jitter in (("base_s", 1.0), ("min_s", 0.8), ("max_s", 1.2)):
            expect(backoff_ms(n, jitter), round(row["expected"][name][index] * 1000))


def _durations(row: Any, given: Mapping[str, Any]) -> None:
    for value, expected in zip(given["values"], row["expected"], strict=True):
        expect(outcome(partial(parse_duration, value), DurationError), expected)


def _signature(row: Any, given: Mapping[str, Any]) -> None:
    verify = {**given, "keys": [given["key_held"]], "expected": row["expected"]}
    signature_rows.check_verify(verify)
    signature_rows.check_sdk_verify(verify)


def _collision(row: Any, given: Mapping[str, Any]) -> None:
    """Call number n returns n: none may read the result of another."""
    results: list[int] = []

    def body(_ctx: Context, step: Step) -> None:
        results[:] = [step.run(call, int, number) for number, call in enumerate(given["calls"], 1)]

    ops = run_to_end(body)
    expect([op["id"] for op in ops[:-1]], row["expected"]["ids"])
    expect(results, row["expected"]["results"])


def _strict_expressions(row: Any) -> None:
    """The environment stands in `given`, the expressions in `when`."""
    data = re.search(r"event\.data = (\{.*\})", row["given"])
    if data is None:
        raise Unhandled(row["given"])
    environment = {"event": {"data": json.loads(data[1])}}
    found = [condition_value(text.strip(), environment) for text in row["when"].split(";")]
    expect(found, row["expected"])


def _broad_except(row: Any) -> None:
    executed: list[str] = []

    def except_exception(_ctx: Context, step: Step) -> None:
        with suppress(Exception):
            step.run("a", executed.append, "a")
        step.run("b", executed.append, "b")

    def except_base(_ctx: Context, step: Step) -> int:
        try:
            step.run("a", executed.append, "a")
        except BaseException:
            step.run("b", executed.append, "b")
        return 1

    def finally_returns(_ctx: Context, step: Step) -> int:
        try:
            step.run("a", executed.append, "a")
        finally:
            return 1  # noqa: B012  # what a user might write: it swallows the unwinding

    for body in (except_exception, except_base, finally_returns):
        executed.clear()
        op = invoke_with(body, {})
        expect([{"op": op["op"], "id": op.get("id")}], row["expected"]["ops"])
        expect(executed, ["a"])


_BY_SHAPE: tuple[tuple[str, set[str], Callable[[Any, Mapping[str, Any]], None]], ...] = (
    ("cron", {"expr", "timezone", "from"}, _cron),
    ("cron", {"triggers"}, _refused_definition),
    ("expressions", {"k"}, _key_types),
    ("expressions", {"expr"}, _one_expression),
    ("executor", {"n"}, _backoff),
    ("sdk", {"values"}, _durations),
    ("sdk", {"calls"}, _collision),
    ("signature", {"key_held", "header", "request", "now"}, _signature),
)
_BY_ID: Mapping[str, Callable[[Any], None]] = {
    "case-33-broad-except": _broad_except,
    "case-40-strict-expressions": _strict_expressions,
}
