"""Function servers with one thing done wrong: `runr conformance` names the rule that they break, and no other."""

from __future__ import annotations

import asyncio
import json
from random import Random
from typing import Any

import pytest

from services.cli.conformance.probe import Probe
from services.cli.conformance.report import line
from services.cli.conformance.rule import Finding
from services.cli.conformance.runner import Runner
from services.cli.conformance.table import RULES
from services.cli.conformance.wire import Place
from tests.support import broken_requests as requests
from tests.support import broken_steps as steps
from tests.support.bare_function import Handler, bare, serving
from tests.support.function_process import FALLBACK_KEY, KEY
from tests.support.listener import listening


async def found(url: str) -> list[Finding]:
    """What a run of all rules, but for the one that takes its time, has found."""
    probe = Probe(Place.of(url, verify_tls=True), [KEY, FALLBACK_KEY], timeout_s=10)
    rules = [rule for rule in RULES if rule.name != "request-too-large"]
    return await Runner(probe, rules, limit_s=60).check(lambda _: None)


def broken(findings: list[Finding]) -> set[str]:
    return {finding.rule.name for finding in findings if finding.state == "failed"}


async def test_the_server_that_the_faults_are_made_of_has_none() -> None:
    with serving(bare.Function) as url:
        assert broken(await found(url)) == set()


STEPS: dict[type[Any], set[str]] = {
    steps.DashedIds: {
        "step-id-any-name",
        "step-id-longest",
        "step-id-not-normalized",
        "step-id-repeats",
        "step-id-taken-after",
        "step-id-taken-before",
    },
    steps.IdsFromTwo: {
        "step-id-any-name",
        "step-id-longest",
        "step-id-not-normalized",
        "step-id-repeats",
        "step-id-taken-after",
    },
    steps.SharedIds: {
        "step-id-taken-after",
        "step-id-taken-before",
    },
    steps.TrimmedIds: {"step-id-blanks-kept"},
    steps.NormalizedIds: {"step-id-not-normalized"},
    steps.RunsAgain: {"replay-memoized-not-run-again"},
    steps.NoResults: {"replay-results-as-stored"},
    steps.NestedSteps: {"steps-nested"},
    steps.AlwaysRetried: {
        "error-in-step-non-retriable",
        "error-in-workflow-non-retriable",
        "output-infinity",
        "output-nan",
        "output-of-workflow-nan",
        "output-unserializable",
        "step-error-uncaught",
        "step-id-refused",
        "steps-nested",
    },
    steps.Milliseconds: {"error-in-step-retry-after"},
    steps.Uncatchable: {
        "kind-invoke-failed",
        "step-error-caught",
    },
    steps.NamelessErrors: {
        "kind-invoke-failed",
        "step-error-caught",
        "step-error-uncaught",
    },
    steps.NoMatch: {"kind-wait-for-event"},
    steps.OwnTimeout: {"kind-wait-for-event-bare"},
    steps.NullOutputs: {
        "output-infinity",
        "output-nan",
        "output-unserializable",
    },
    steps.AnyIds: {
        "step-id-refused",
        "steps-nested",
    },
}
FUNCTIONS: dict[type[Any], set[str]] = {
    steps.SwallowableFunction: {
        "interrupt-swallowed-then-error",
        "interrupt-swallowed-then-return",
        "interrupt-swallowed-then-step",
    },
    steps.NanOutputs: {
        "output-infinity",
        "output-nan",
    },
    steps.FirstAttempts: {"replay-attempt"},
    requests.Wrapped: set(),
    steps.OneAtATime: {"connection-runs-at-once"},
    requests.NoWindow: {
        "signature-from-the-future",
        "signature-too-old",
    },
    requests.ShortWindow: {"signature-in-its-window"},
    requests.FirstSignature: {
        "signature-malformed",
        "signature-two-keys",
    },
    requests.OneKey: {"signature-fallback-key"},
    requests.HeaderWins: {"envelope-damaged", "signature-differs-from-header"},
    requests.HeaderOnly: {
        "headers-absent",
        "signature-in-envelope-only",
    },
    requests.Strict: {
        "envelope-unknown-fields",
        "replay-unknown-fields",
        "request-large",
        "signature-envelope-re-encoded",
        "signature-over-bytes",
    },
    requests.NotFound: {"workflow-not-served"},
    requests.BadDefinitions: {"introspect-definitions"},
    requests.Crashes: {
        "envelope-damaged",
        "envelope-none",
        "envelope-wrong-types",
        "request-not-json",
        "signature-judged-first",
    },
}
HANDLERS: dict[Handler, set[str]] = {
    requests.no_ids_for_refusals: {"connection-request-id"},
    requests.one_read: {
        "connection-body-in-pieces",
        "output-large",
        "request-large",
    },
    requests.case_matters: {"headers-in-any-case"},
}
WIDE: dict[type[Any], set[str]] = {
    steps.with_step(steps.PlainErrors): {
        "error-in-step",
        "error-in-workflow",
    },
    steps.TwoOps: {"replay-first-step"},
    requests.Unverified: {
        "signature-missing",
        "signature-wrong-key",
        "signature-of-another-request",
        "signature-too-old",
    },
    requests.WrittenAgain: {
        "signature-over-bytes",
        "signature-of-another-request",
    },
    requests.TextErrors: {
        "signature-missing",
        "workflow-not-served",
        "envelope-none",
    },
}
"""Faults of which many rules take notice, and some that must be among them."""


def named(rows: Any) -> Any:
    return [pytest.param(fault, rules, id=fault.__name__) for fault, rules in rows.items()]


@pytest.mark.parametrize(("step", "rules"), named(STEPS))
async def test_a_fault_of_step_calls_is_named(step: type[Any], rules: set[str]) -> None:
    with serving(steps.with_step(step)) as url:
        assert broken(await found(url)) == rules


@pytest.mark.parametrize(("function", "rules"), named(FUNCTIONS))
async def test_a_fault_of_the_function_is_named(function: type[Any], rules: set[str]) -> None:
    with serving(function) as url:
        assert broken(await found(url)) == rules


@pytest.mark.parametrize(("handler", "rules"), named(HANDLERS))
async def test_a_fault_of_connections_is_named(handler: Handler, rules: set[str]) -> None:
    with serving(bare.Function, handler) as url:
        assert broken(await found(url)) == rules


@pytest.mark.parametrize(("function", "rules"), named(WIDE))
async def test_a_fault_that_many_rules_see_is_named(function: type[Any], rules: set[str]) -> None:
    with serving(function) as url:
        assert rules <= broken(await found(url))


async def test_a_finding_says_what_was_sent_what_was_expected_and_what_came() -> None:
    with serving(requests.NotFound) as url:
        (finding,) = [each for each in await found(url) if each.state == "failed"]
    assert finding.sent.startswith('an execute request for a workflow that is not served: {"runr_workflow":"v1"')
    assert finding.expected == 'HTTP 400 with {"error": …} whose text names conformance-absent'
    assert finding.came == 'HTTP 404 {"error":"conformance-absent is not here"}'
    assert line(finding).splitlines()[0] == "FAILED workflow-not-served              protocol section 2"


async def test_a_server_with_other_request_ids_answers_nothing() -> None:
    with serving(bare.Function, requests.other_ids) as url:
        findings = await found(url)
    first = findings[0]
    assert (first.rule.name, first.state) == ("signature-valid", "failed")
    assert first.came == f"the id {'0' * 32}"
    # Without an id in the request, none is wrong.
    assert {each.rule.name for each in findings if each.state == "ok"} == {"headers-absent", "headers-in-any-case"}


async def test_a_server_that_never_answers_is_left_when_the_time_is_up() -> None:
    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with listening(hold) as address:
        probe = Probe(Place.of(f"http://{address}", verify_tls=True), [KEY], timeout_s=0.05)
        findings = await Runner(probe, RULES[:20], limit_s=0.5).check(lambda _: None)
    assert {finding.state for finding in findings} <= {"failed", "not applicable"}
    assert findings[0].expected == "an answer within 0.05 s"
    assert findings[-1].expected == "an end of all rules within 0.5 s"


@pytest.mark.parametrize("seed", range(4))
async def test_no_answer_confuses_the_runner(seed: int) -> None:
    random = Random(seed)

    class Erratic(bare.Function):  # type: ignore[misc]
        def answer(self, body: bytes, header: str | None) -> tuple[int, bytes]:
            status, text = super().answer(body, header)
            return (status, text) if b"conformance" not in body and random.random() < 0.9 else strange(random, text)

    with serving(Erratic) as url:
        findings = await found(url)
    assert len(findings) == len(RULES) - 1


def strange(random: Random, text: bytes) -> tuple[int, bytes]:
    """Something that is nearly an answer."""
    word = random.choice(["step_completed", "run_completed", "run_failed", "sleep", "?"])
    op: dict[str, Any] = {"op": word, "id": "first"}
    op["output"] = random.choice([None, 1, "x", [], {"executed": 5}, {"first": None}])
    answers: list[Any] = [
        {"runr_workflow": "v1", "ops": [op]},
        {"runr_workflow": "v1", "ops": [op, op]},
        {"runr_workflow": "v1", "ops": 1},
        {"statusCode": 200, "body": json.dumps({"runr_workflow": "v1", "ops": [op]})},
        {"statusCode": 200, "body": {"runr_workflow": "v1", "ops": [op]}},
        {"statusCode": 200},
        {"runr_workflow": "v1", "workflows": [1, None, {"name": 5}], "capabilities": [1]},
        [],
        None,
    ]
    body = random.choice([text, text[: len(text) // 2], b"", *(json.dumps(answer).encode() for answer in answers)])
    return random.choice([200, 200, 200, 400, 500]), body
