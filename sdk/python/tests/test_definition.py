"""`@wf.workflow`: options are checked when the decorator runs, and all faults are named (engine section 1)."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from runr_workflows import AsyncStep, Context, DefinitionError, Step, Workflows, __version__
from runr_workflows.cron_line import cron_fault
from sdk.python.tests.engine import FakeEngine


def test_introspect_lists_the_definitions_as_given(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow(
        "process-order",
        triggers=[
            {"event": "order.created", "if": "event.data.total > 0"},
            {"cron": "0 9 * * *", "timezone": "Europe/Istanbul"},
            {"queue": "orders"},
        ],
        retries=4,
        timeout=timedelta(days=7),
        concurrency={"limit": 5, "key": "event.data.customer_id"},
        idempotency="event.data.order_id",
        cancel_on=[{"event": "order.cancelled", "match": "data.order_id", "timeout": timedelta(minutes=1)}],
        description="Orders",
        checkpoint={"max_steps": 50, "max_time": "5s"},
    )
    def process_order(ctx: Context, step: Step) -> None:
        pass

    @wf.workflow("small", concurrency=[1, {"limit": 2}])
    async def small(ctx: Context, step: AsyncStep) -> None:
        pass

    assert engine.introspect() == {
        "runr_workflow": "v1",
        "sdk": {"name": "runr-workflows", "language": "python", "version": __version__},
        "capabilities": ["dry", "max_ops"],
        "workflows": [
            {
                "name": "process-order",
                "description": "Orders",
                "triggers": [
                    {"event": "order.created", "if": "event.data.total > 0"},
                    {"cron": "0 9 * * *", "timezone": "Europe/Istanbul"},
                    {"queue": "orders"},
                ],
                "retries": 4,
                "timeout": "604800000ms",
                "concurrency": {"limit": 5, "key": "event.data.customer_id"},
                "idempotency": "event.data.order_id",
                "cancel_on": [{"event": "order.cancelled", "match": "data.order_id", "timeout": "60000ms"}],
                "checkpoint": {"max_steps": 50, "max_time": "5s"},
            },
            {"name": "small", "concurrency": [1, {"limit": 2}]},
        ],
    }


def test_every_fault_is_named_with_its_path(wf: Workflows) -> None:
    options: dict[str, Any] = {
        "triggers": [{"event": "a", "cron": "b"}, {"event": ""}, {"queue": "q", "if": "x"}, "a"],
        "retries": 21,
        "timeout": "0s",
        "concurrency": {"limit": 0, "kye": "x"},
        "cancel_on": [{"match": "data.id"}],
        "checkpoint": {"max_steps": True},
    }

    with pytest.raises(DefinitionError) as caught:
        wf.workflow("app", **options)

    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        "name",
        "triggers[0]",
        "triggers[1].event",
        "triggers[2].if",
        "triggers[3]",
        "retries",
        "timeout",
        "concurrency.limit",
        "concurrency.kye",
        "cancel_on[0].event",
        "checkpoint.max_steps",
    ]


@pytest.mark.parametrize("name", ["", "-a", "a b", "a" * 101, "é", "app", "sync", "a\n", None, 1])
def test_bad_names_are_refused(wf: Workflows, name: Any) -> None:
    with pytest.raises(DefinitionError, match="name"):
        wf.workflow(name)


@pytest.mark.parametrize(
    "options",
    [
        {"retries": True},
        {"retries": "3"},
        {"timeout": "1 day"},
        {"timeout": "367d"},
        {"timeout": 0.5},
        {"concurrency": [1, 2, 3]},
        {"concurrency": "5"},
        {"idempotency": ""},
        {"idempotency": "x" * 1001},
        {"cancel_on": [{"event": "x"}] * 6},
        {"triggers": [{"event": "x"}] * 11},
        {"triggers": {"event": "x"}},
        {"triggers": []} | {"description": "x" * 1001},
        {"checkpoint": {}},
        {"checkpoint": {"max_time": "5s"}},
        {"checkpoint": {"max_steps": 0}},
        {"checkpoint": {"max_steps": 1001}},
        {"checkpoint": {"max_steps": 1, "max_time": "0s"}},
        {"checkpoint": {"max_steps": 1, "max_time": "5m1s"}},
    ],
)
def test_bad_options_are_refused(wf: Workflows, options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        wf.workflow("w", **options)


@pytest.mark.parametrize(
    "checkpoint", [{"max_steps": 10}, {"max_steps": 1000, "max_time": "5m"}, {"max_steps": 1, "max_time": "1ms"}]
)
def test_checkpoints_that_the_engine_takes_are_taken(wf: Workflows, engine: FakeEngine, checkpoint: Any) -> None:
    @wf.workflow("w", checkpoint=checkpoint)
    def w(ctx: Context, step: Step) -> None:
        pass

    assert engine.introspect()["workflows"] == [{"name": "w", "checkpoint": checkpoint}]


def test_a_name_is_registered_once(wf: Workflows, engine: FakeEngine) -> None:
    @wf.workflow("w")
    def first(ctx: Context, step: Step) -> str:
        return "first"

    def second(ctx: Context, step: Step) -> str:
        return "second"

    with pytest.raises(DefinitionError, match="first is already registered"):
        wf.workflow("w")(second)
    assert engine.run("w").output == "first"


def no_parameters() -> None: ...
def one_parameter(ctx: Context) -> None: ...
def three_parameters(ctx: Context, step: Step, more: int) -> None: ...


def generator(ctx: Context, step: Step) -> Any:
    yield


async def async_generator(ctx: Context, step: AsyncStep) -> Any:
    yield


@pytest.mark.parametrize("fn", [no_parameters, one_parameter, three_parameters, generator, async_generator, int, None])
def test_what_is_no_workflow_function_is_refused(wf: Workflows, fn: Any) -> None:
    with pytest.raises(DefinitionError):
        wf.workflow("w")(fn)


def test_the_decorated_function_stays_itself_and_can_be_invoked_by_reference(wf: Workflows, engine: FakeEngine) -> None:
    def child(ctx: Context, step: Step) -> None: ...

    assert wf.workflow("child-name")(child) is child

    @wf.workflow("w")
    def parent(ctx: Context, step: Step) -> None:
        step.invoke("call", child)

    assert engine.execute("w")["workflow"] == "child-name"


WRONG = {
    "triggers[0].event: 'order created' may hold only letters": {"triggers": [{"event": "order created"}]},
    "triggers[0].event: of the platform's events only runr/run.cancelled,": {"triggers": [{"event": "runr/run.begun"}]},
    "triggers[0].event: must have 1–200 characters, it has 201 (": {"triggers": [{"event": "x" * 201}]},
    "triggers[0].event: must be a string, not int (7)": {"triggers": [{"event": 7}]},
    "triggers[0].queue: 'queue/a b' may hold only": {"triggers": [{"queue": "a b"}]},
    "triggers[0].timezone: an IANA timezone, exactly spelled, such as Europe/Istanbul or UTC, not 'Europe/ Kyiv'": {
        "triggers": [{"cron": "* * * * *", "timezone": "Europe/ Kyiv"}]
    },
    "cancel_on[0].event: the name of an event, not None": {"cancel_on": [{"match": "data.id"}]},
    "cancel_on[0].event: 'a b' may hold only letters": {"cancel_on": [{"event": "a b"}]},
    "retries: an integer from 0 to 20, not 'three'": {"retries": "three"},
    "retries: an integer from 0 to 20, not a value of the type int": {"retries": 10**5000},
    "concurrency: an integer from 1 to 10,000, or an object like {'limit': 5,": {"concurrency": "5"},
    "checkpoint: an object like {'max_steps': 50, 'max_time': '5s'}, not 50": {"checkpoint": 50},
    "description: a text of at most 1,000 characters, not 1,001 characters": {"description": "x" * 1001},
    "priority: is not supported yet; allowed are description, triggers, retries,": {"priority": 3},
    "on_failure: is not supported yet; allowed are": {"on_failure": None},
    "retires: unknown (did you mean retries?); allowed are description, triggers, retries,": {"retires": 3},
    "triggers[0].if: at character 14: unexpected '='": {"triggers": [{"event": "a", "if": "event.data.x = 1"}]},
    "triggers[1].cron: minute: '61' is not 0-59": {"triggers": [{"cron": "* * * * *"}, {"cron": "61 * * * *"}]},
    "triggers[0].catch_up: one of latest, all, none": {"triggers": [{"cron": "* * * * *", "catch_up": "some"}]},
    "idempotency: at character 12: expected a value": {"idempotency": "event.id ||"},
    "idempotency: may only use event": {"idempotency": "event.id == async.id"},
    "concurrency.key: may only use event": {"concurrency": {"limit": 1, "key": "async.id"}},
    "concurrency[1].key: at character 1: expected": {"concurrency": [1, {"limit": 1, "key": "data.id"}]},
    "cancel_on[0].match: at character 1: a match path begins with": {"cancel_on": [{"event": "a", "match": "event.x"}]},
    "cancel_on[0].if: at character 1: expected": {"cancel_on": [{"event": "a", "if": "&& true"}]},
}


@pytest.mark.parametrize("told", WRONG)
def test_what_the_engine_would_refuse_is_told_at_the_decorator(wf: Workflows, told: str) -> None:
    options: dict[str, Any] = WRONG[told]
    with pytest.raises(DefinitionError) as caught:
        wf.workflow("w", **options)
    (fault,) = caught.value.faults
    assert fault.startswith(told)


def test_a_fault_of_an_expression_or_schedule_shows_it(wf: Workflows) -> None:
    with pytest.raises(DefinitionError) as caught:
        wf.workflow("w", triggers=[{"event": "a", "if": "event.x = 1"}, {"cron": "61 * * * *"}])
    assert [fault.rpartition(", in ")[2] for fault in caught.value.faults] == ["'event.x = 1'", "'61 * * * *'"]


def test_what_is_none_is_left_out_everywhere(wf: Workflows) -> None:
    options: dict[str, Any] = {
        "triggers": [{"event": "a", "if": None, "cron": None}, {"cron": "* * * * *", "timezone": None}],
        "concurrency": {"limit": 1, "key": None},
        "cancel_on": [{"event": "a", "match": None, "timeout": "400d"}],
        "checkpoint": {"max_steps": 1, "max_time": None},
    }

    wf.workflow("w", **options)(lambda ctx, step: None)

    assert wf.definitions == [
        {
            "name": "w",
            "triggers": [{"event": "a"}, {"cron": "* * * * *"}],
            "concurrency": {"limit": 1},
            "cancel_on": [{"event": "a", "timeout": "400d"}],
            "checkpoint": {"max_steps": 1},
        }
    ]


def test_the_decorator_without_a_name_says_how_it_is_written(wf: Workflows) -> None:
    decorate: Any = wf.workflow
    with pytest.raises(DefinitionError, match=r"name: it comes first, as in @wf\.workflow\('process-order'\)"):
        decorate(no_parameters)


def test_a_zone_that_this_machine_does_not_know_is_a_doubt(wf: Workflows, caplog: pytest.LogCaptureFixture) -> None:
    zones = ("Europe/Istanbul", "Europe/Istambul", None)
    triggers: list[Any] = [{"cron": "0 9 * * *", "timezone": zone} for zone in zones]

    wf.workflow("w", triggers=triggers)(lambda ctx, step: None)

    (line,) = (record.getMessage() for record in caplog.records)
    assert line.startswith("workflow w: triggers[1].timezone: this machine knows no 'Europe/Istambul'; ")


def cron_cases() -> list[Any]:
    found = json.loads((Path(__file__).parents[3] / "tests/vectors/data/cron.json").read_text(encoding="utf-8"))
    return [case for case in found["cases"] if isinstance(case["expr"], str)]


@pytest.mark.parametrize("case", cron_cases(), ids=lambda case: case["id"])
def test_cron_lines_are_taken_and_refused_as_by_the_engine(case: Any) -> None:
    refused = case["expected"] in ("error", "refused", "invalid") and "zone" not in case["id"]
    assert (cron_fault(case["expr"]) is not None) is refused


def test_a_program_without_expressions_and_schedules_does_not_load_their_grammar() -> None:
    code = """
import sys
from runr_workflows import Workflows
Workflows().workflow("w", triggers=[{"event": "a"}], retries=3, cancel_on=[{"event": "b"}])(lambda ctx, step: None)
print(*{"runr_workflows.expression", "runr_workflows.cron_line"} & sys.modules.keys())
"""
    source = str(Path(__file__).parents[1] / "src")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": source})
    assert (done.returncode, done.stdout.strip()) == (0, "")
