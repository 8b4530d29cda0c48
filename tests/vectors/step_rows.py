"""`step_ids.json`: ids that the SDK gives to step calls, which ids it refuses, what it does with stored results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from runr_workflows import Context, Step, StepError
from runr_workflows.step_ids import StepIds

from services.core.domain.step_id import step_id_fault
from tests.vectors.check import Check, Unhandled, expect, outcome
from tests.vectors.prose import allowed, made_text
from tests.vectors.sdk_python import invoke_with, run_to_end


def checks(document: Any) -> Iterator[Check]:
    """Every row, through the Python SDK; the ids it gives also through the engine, which must take them."""
    for row in document.get("sequences", []):
        yield Check(row["id"], partial(_check_taken, row))
        yield Check(f"{row['id']} [sdk python]", partial(_check_sequence, row))
        yield Check(f"{row['id']} [sdk python, replayed]", partial(_check_replayed, row))
    for row in document.get("lengths", []):
        yield Check(f"{row['id']} [sdk python]", partial(_check_length, row))
    for row in document.get("types", []):
        yield Check(f"{row['id']} [sdk python]", partial(_check_type, row))
    for row in document.get("memo", []):
        yield Check(f"{row['id']} [sdk python]", partial(_check_memo, row))


def _check_taken(row: Any) -> None:
    expect([step_id_fault(step_id) for step_id in row["expected_ids"]], [None] * len(row["expected_ids"]))
    expect(len(set(row["expected_ids"])), len(row["expected_ids"]))


def _check_sequence(row: Any) -> None:
    runs = [StepIds() for _ in range(row.get("concurrent_runs", 1))]
    given: list[list[str]] = [[] for _ in runs]
    for call in row["calls"]:
        for ids, run in zip(given, runs, strict=True):
            ids.append(run.assign(call))
    for ids in given:
        expect(ids, row["expected_ids"])


def _check_replayed(row: Any) -> None:
    """The same through signed requests, one invocation a step, each call of its kind."""
    kinds = row.get("kinds") or ["run"] * len(row["calls"])
    calls = list(zip(kinds, row["calls"], strict=True))

    def body(_ctx: Context, step: Step) -> None:
        for kind, step_id in calls:
            _call(step, kind, step_id)

    ops = run_to_end(body, most=len(calls) + 1)
    expect([op["id"] for op in ops[:-1]], row["expected_ids"])
    expect(ops[-1]["op"], "run_completed")


def _call(step: Step, kind: str, step_id: str) -> None:
    if kind == "run":
        step.run(step_id, int)
    elif kind == "sleep":
        step.sleep(step_id, "1s")
    elif kind == "wait_for_event":
        step.wait_for_event(step_id, "a", timeout="1s")
    elif kind == "invoke":
        step.invoke(step_id, "w")
    elif kind == "send_event":
        step.send_event(step_id, {"name": "a"})
    else:
        raise Unhandled(f"kind {kind}")


def _check_length(row: Any) -> None:
    step_id = made_text(row["make"])
    if "utf8_bytes" in row:
        expect(len(step_id.encode(errors="surrogatepass")), row["utf8_bytes"])
    verdicts = allowed(row["expected"])
    if not verdicts:
        raise Unhandled(row["expected"])
    found = outcome(lambda: StepIds().assign(step_id), ValueError)
    assert ("error" if found == "error" else "ok") in verdicts, f"expected {row['expected']}, got {found!r:.60}"
    repeat = re.search(r"the ([0-9]+)(?:st|nd|rd|th) repeat is ([0-9]+) bytes", row["expected"])
    if repeat:
        ids = StepIds()
        last = [ids.assign(step_id) for _ in range(int(repeat[1]))][-1]
        expect(len(last.encode()), int(repeat[2]))
        expect(step_id_fault(last), None)


def _check_type(row: Any) -> None:
    verdicts = allowed(row["expected"])
    if not verdicts:
        raise Unhandled(row["expected"])
    found = outcome(lambda: StepIds().assign(row["call"]), ValueError)
    assert ("error" if found == "error" else "ok") in verdicts or f'the string "{found}"' in row["expected"]


@dataclass(slots=True)
class _Seen:
    """What one invocation did, by step id."""

    executed: list[str] = field(default_factory=list)
    returned: dict[str, Any] = field(default_factory=dict)
    raised: dict[str, StepError] = field(default_factory=dict)
    op: dict[str, Any] = field(default_factory=dict)


def _check_memo(row: Any) -> None:
    seen = _Seen()

    def execute(step_id: str) -> str:
        seen.executed.append(step_id)
        return "executed"

    def body(_ctx: Context, step: Step) -> None:
        for step_id in row["calls"]:
            try:
                seen.returned[step_id] = step.run(step_id, execute, step_id)
            except StepError as error:
                seen.raised[step_id] = error

    seen.op = invoke_with(body, row["steps"])
    for clause in row["expected"].split(";"):
        _check_clause(re.sub(r"\(.*?\)", "", clause).strip(), seen, row)


def _check_clause(clause: str, seen: _Seen, row: Any) -> None:
    """One clause of what is expected of an invocation; `seen` says what happened."""
    (first, *_) = row["calls"]
    if match := re.fullmatch(r"runs (\S+)|(\S+) executes", clause):
        expect(seen.executed, [match[1] or match[2]])
    elif match := re.fullmatch(r"(\S+) returns null(?: without running)?", clause):
        assert match[1] in seen.returned, f"{match[1]} did not return"
        expect(seen.returned[match[1]], None)
    elif match := re.fullmatch(r"(\S+) returns the (?:object|output|value)", clause):
        expect(seen.returned.get(match[1]), row["steps"][match[1]]["output"])
    elif match := re.fullmatch(r"(\S+) returns (.+)", clause):
        expect(seen.returned.get(match[1]), _json(match[2], clause))
    elif match := re.match(r"(\S+) (?:raises|throws)\b", clause):
        assert match[1] in seen.raised, f"{match[1]} did not raise"
    elif re.search(r"\bStepError\b.*\b(?:raised|thrown)\b|\b(?:raises|throws)\b.*\bStepError\b", clause):
        assert first in seen.raised, f"{first} did not raise"
    elif match := re.fullmatch(r"(\S+) is left alone", clause):
        assert match[1] not in (*seen.executed, *seen.returned)
    elif clause == "nothing is raised":
        assert not seen.raised, seen.raised
        assert seen.op["op"] != "run_failed", seen.op
    elif clause == "treated as not memoized or a clean failure":
        assert seen.executed == [first] or seen.op["op"] == "run_failed", seen.op
    elif clause == "never returned as completed":
        assert first not in seen.returned or first in seen.executed
    else:
        raise Unhandled(clause)


def _json(text: str, clause: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise Unhandled(clause) from None
