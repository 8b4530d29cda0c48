"""Definitions: what is taken, every fault with its path, and the canonical form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.core.domain.errors import FieldError, InvalidInput
from services.core.domain.workflow import (
    CancelOn,
    Checkpoint,
    ConcurrencyLimit,
    CronTrigger,
    Definition,
    EventTrigger,
    QueueTrigger,
    definition_from_json,
    definition_to_json,
    definitions_list,
    validate_definitions,
    version_hash,
)

DAY_MS = 86_400_000
COMPLETE = {
    "name": "process-order",
    "description": "Ödeme",
    "triggers": [
        {"event": "order.created", "if": "event.data.total > 0"},
        {"cron": " 0 9 * * * ", "timezone": "Europe/Istanbul", "catch_up": "all"},
        {"queue": "orders"},
        {"event": "runr/run.failed"},
    ],
    "retries": 0,
    "timeout": "7d",
    "concurrency": [{"limit": 5, "key": "event.data.customer_id"}, 10],
    "idempotency": "event.data.order_id",
    "cancel_on": [{"event": "order.cancelled", "match": "data.order_id", "if": "async.data.hard", "timeout": "1h"}],
    "checkpoint": {"max_steps": 50, "max_time": "5s"},
}


def faults(*workflows: Any, strict: bool = True) -> list[FieldError]:
    """The faults of a list that is refused."""
    with pytest.raises(InvalidInput) as refused:
        validate_definitions(list(workflows), strict_unknown=strict)
    return list(refused.value.errors)


def one(**fields: Any) -> Definition:
    """The definition of these fields beside a name."""
    (definition,), warnings = validate_definitions([{"name": "w", **fields}], strict_unknown=True)
    assert warnings == []
    return definition


def test_a_complete_definition() -> None:
    (definition,), warnings = validate_definitions([COMPLETE], strict_unknown=True)

    assert warnings == []
    assert definition == Definition(
        name="process-order",
        description="Ödeme",
        triggers=(
            EventTrigger("order.created", "event.data.total > 0"),
            CronTrigger("0 9 * * *", "Europe/Istanbul", "all"),
            QueueTrigger("orders"),
            EventTrigger("runr/run.failed"),
        ),
        retries=0,
        timeout_ms=7 * DAY_MS,
        concurrency=(ConcurrencyLimit(5, "event.data.customer_id"), ConcurrencyLimit(10)),
        idempotency="event.data.order_id",
        cancel_on=(CancelOn("order.cancelled", "data.order_id", "async.data.hard", 3_600_000),),
        checkpoint=Checkpoint(50, 5000),
    )
    assert definition.max_attempts == 1


def test_defaults() -> None:
    definition = one()

    assert definition == Definition(name="w")
    assert (definition.retries, definition.max_attempts, definition.timeout_ms) == (3, 4, 30 * DAY_MS)
    assert (
        one(**dict.fromkeys(["description", "triggers", "retries", "timeout", "concurrency", "checkpoint"]))
        == definition
    )
    assert one(checkpoint={"max_steps": 3}).checkpoint == Checkpoint(3, 5000)
    assert one(triggers=[{"cron": "* * * * *", "timezone": None}]).triggers == (CronTrigger("* * * * *"),)


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"concurrency": 3}, {"concurrency": (ConcurrencyLimit(3),)}),
        ({"concurrency": {"limit": 1, "key": "'all'"}}, {"concurrency": (ConcurrencyLimit(1, "'all'"),)}),
        ({"concurrency": []}, {"concurrency": ()}),
        ({"timeout": 1}, {"timeout_ms": 1000}),
        ({"timeout": "366d"}, {"timeout_ms": 366 * DAY_MS}),
        ({"retries": 20}, {"retries": 20}),
        ({"cancel_on": [{"event": "x"}]}, {"cancel_on": (CancelOn("x"),)}),
        (
            {"triggers": [{"event": "x", "if": "async.data.y == null"}]},
            {"triggers": (EventTrigger("x", "async.data.y == null"),)},
        ),
        ({"checkpoint": {"max_steps": 1000, "max_time": "300s"}}, {"checkpoint": Checkpoint(1000, 300_000)}),
        ({"description": "x" * 1000}, {"description": "x" * 1000}),
    ],
)
def test_values_that_are_taken(fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert one(**fields) == Definition(name="w", **wanted)


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("description", 5, "description"),
        ("description", "x" * 1001, "description"),
        ("description", "a\0", "description"),
        ("description", "\ud800", "description"),
        ("triggers", {}, "triggers"),
        ("triggers", [{"event": "x"}] * 11, "triggers"),
        ("triggers", ["x"], "triggers[0]"),
        ("triggers", [{}], "triggers[0]"),
        ("triggers", [{"if": "true"}], "triggers[0]"),
        ("triggers", [{"event": "x", "cron": "* * * * *"}], "triggers[0]"),
        ("triggers", [{"event": "x y"}], "triggers[0].event"),
        ("triggers", [{"event": 5}], "triggers[0].event"),
        ("triggers", [{"event": "runr/cron"}], "triggers[0].event"),
        ("triggers", [{"event": "x", "if": "total > 1"}], "triggers[0].if"),
        ("triggers", [{"event": "x", "if": True}], "triggers[0].if"),
        ("triggers", [{"event": "x", "timezone": "UTC"}], "triggers[0].timezone"),
        ("triggers", [{"cron": "0 0 9 * * *"}], "triggers[0].cron"),
        ("triggers", [{"cron": 5}], "triggers[0].cron"),
        ("triggers", [{"cron": "* * * * *", "timezone": "Istanbul"}], "triggers[0].timezone"),
        ("triggers", [{"cron": "* * * * *", "timezone": []}], "triggers[0].timezone"),
        ("triggers", [{"cron": "* * * * *", "catch_up": "some"}], "triggers[0].catch_up"),
        ("triggers", [{"cron": "* * * * *", "catch_up": []}], "triggers[0].catch_up"),
        ("triggers", [{"queue": ""}], "triggers[0].queue"),
        ("triggers", [{"queue": "a b"}], "triggers[0].queue"),
        ("triggers", [{"queue": "q" * 200}], "triggers[0].queue"),
        ("retries", -1, "retries"),
        ("retries", 21, "retries"),
        ("retries", 1.0, "retries"),
        ("retries", True, "retries"),
        ("retries", "3", "retries"),
        ("timeout", "999ms", "timeout"),
        ("timeout", "366d1ms", "timeout"),
        ("timeout", "30D", "timeout"),
        ("timeout", [], "timeout"),
        ("concurrency", 0, "concurrency.limit"),
        ("concurrency", 10_001, "concurrency.limit"),
        ("concurrency", True, "concurrency"),
        ("concurrency", "3", "concurrency"),
        ("concurrency", {}, "concurrency.limit"),
        ("concurrency", {"limit": 1, "key": "customer_id"}, "concurrency.key"),
        ("concurrency", {"limit": 1, "key": "async.data.x"}, "concurrency.key"),
        ("concurrency", {"limit": 1, "scope": "env"}, "concurrency.scope"),
        ("concurrency", [1, 2, 3], "concurrency"),
        ("concurrency", [1, {"limit": None}], "concurrency[1].limit"),
        ("idempotency", "event.data.", "idempotency"),
        ("idempotency", "async.id", "idempotency"),
        ("idempotency", 1, "idempotency"),
        ("cancel_on", [{"event": "x"}] * 6, "cancel_on"),
        ("cancel_on", [{"match": "data.x"}], "cancel_on[0].event"),
        ("cancel_on", [{}], "cancel_on[0].event"),
        ("cancel_on", [{"event": "x", "match": "order_id"}], "cancel_on[0].match"),
        ("cancel_on", [{"event": "x", "match": 5}], "cancel_on[0].match"),
        ("cancel_on", [{"event": "x", "if": "1 <"}], "cancel_on[0].if"),
        ("cancel_on", [{"event": "x", "timeout": 0}], "cancel_on[0].timeout"),
        ("cancel_on", [{"event": "x", "timeout": "P1M"}], "cancel_on[0].timeout"),
        ("checkpoint", 5, "checkpoint"),
        ("checkpoint", {}, "checkpoint.max_steps"),
        ("checkpoint", {"max_steps": 0}, "checkpoint.max_steps"),
        ("checkpoint", {"max_steps": 1, "max_time": "0s"}, "checkpoint.max_time"),
        ("checkpoint", {"max_steps": 1, "max_time": "301s"}, "checkpoint.max_time"),
        ("steps", [], "steps"),
        ("od d\0", [], '["od d\\u0000"]'),
    ],
)
def test_one_fault_with_its_path_and_the_workflow(field: str, value: object, path: str) -> None:
    (fault,) = faults({"name": "w", field: value})

    assert fault.path == f"workflows[0].{path}".replace(".[", "[")
    assert fault.message.endswith("(workflow w)")


@pytest.mark.parametrize(
    "name", ["", "-a", ".a", "_a", "a b", "é", "a" * 101, "a/b", "app", "sync", "a\n", None, 5, True]
)
def test_refused_names(name: object) -> None:
    assert [fault.path for fault in faults({"name": name})] == ["workflows[0].name"]


@pytest.mark.parametrize("name", ["a", "0", "App", "a.b_c-d", "a" * 100, "application", "a."])
def test_names(name: str) -> None:
    assert validate_definitions([{"name": name}], strict_unknown=True)[0][0].name == name


@pytest.mark.parametrize(
    "option", ["priority", "rate_limit", "throttle", "debounce", "batch", "singleton", "on_failure"]
)
@pytest.mark.parametrize("strict", [True, False])
def test_options_of_later_are_refused_by_name_and_never_ignored(option: str, strict: bool) -> None:
    (fault,) = faults({"name": "w", option: 1}, strict=strict)

    assert fault.path == f"workflows[0].{option}"
    assert "not supported yet" in fault.message


def test_every_fault_of_every_workflow_is_listed() -> None:
    found = faults({"name": "a", "retries": 21, "timeout": 0}, {"name": "b", "color": "red"}, {"name": "a"}, 7, {})

    assert [fault.path for fault in found] == [
        "workflows[0].retries",
        "workflows[0].timeout",
        "workflows[1].color",
        "workflows[2].name",
        "workflows[3]",
        "workflows[3].name",
        "workflows[4].name",
    ]
    assert "workflows[0]" in found[3].message


def test_unknown_fields_are_warnings_where_the_sender_may_be_newer() -> None:
    value = [{"name": "w", "color": 1, "triggers": [{"event": "x", "filter": 1}], "concurrency": {"limit": 1, "x": 1}}]

    (definition,), warnings = validate_definitions(value, strict_unknown=False)

    assert definition.triggers == (EventTrigger("x"),)
    assert [warning.path for warning in warnings] == [
        "workflows[0].color",
        "workflows[0].triggers[0].filter",
        "workflows[0].concurrency.x",
    ]


@pytest.mark.parametrize("value", [None, {}, "x", 5, [{"name": f"w{number}"} for number in range(501)]])
def test_what_is_no_list_of_at_most_500(value: object) -> None:
    with pytest.raises(InvalidInput):
        validate_definitions(value, strict_unknown=True)


def test_500_and_none_are_taken() -> None:
    assert len(validate_definitions([{"name": f"w{number}"} for number in range(500)], strict_unknown=True)[0]) == 500
    assert validate_definitions([], strict_unknown=True) == ([], [])


def test_a_file_is_a_list_or_an_object_with_one() -> None:
    assert definitions_list([1]) == ([1], [])
    assert definitions_list({"workflows": [1]}) == ([1], [])
    value, unknown = definitions_list({"workflows": [1], "sdk": {}})
    assert value == [1]
    assert [each.path for each in unknown] == ["sdk"]
    with pytest.raises(InvalidInput):
        definitions_list({})


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(
    lambda name: name not in ("app", "sync")
)
triggers = st.one_of(
    st.builds(EventTrigger, names, st.none() | st.just("event.data.x == 'é'")),
    st.builds(CronTrigger, st.just("*/5 * * * *"), st.just("Asia/Tokyo"), st.sampled_from(["latest", "all", "none"])),
    st.builds(QueueTrigger, names),
)
definitions = st.builds(
    Definition,
    name=names,
    description=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
    triggers=st.lists(triggers, max_size=3).map(tuple),
    retries=st.integers(0, 20),
    timeout_ms=st.integers(1000, 366 * DAY_MS),
    concurrency=st.lists(
        st.builds(ConcurrencyLimit, st.integers(1, 9), st.none() | st.just("event.id")), max_size=2
    ).map(tuple),
    idempotency=st.none() | st.just("event.data.k"),
    cancel_on=st.lists(
        st.builds(
            CancelOn,
            names,
            st.none() | st.just("data.x"),
            st.none() | st.just("async.id"),
            st.none() | st.integers(1, 10**9),
        ),
        max_size=2,
    ).map(tuple),
    checkpoint=st.none() | st.builds(Checkpoint, st.integers(1, 1000), st.integers(1, 300_000)),
)


@given(definitions)
def test_the_canonical_form_is_the_definition_and_is_a_valid_one(definition: Definition) -> None:
    text = definition_to_json(definition)

    assert definition_from_json(text) == definition
    assert validate_definitions([json.loads(text)], strict_unknown=True) == ([definition], [])


@given(st.lists(definitions, unique_by=lambda definition: definition.name, min_size=1, max_size=3))
def test_the_version_hash_is_of_the_content_alone(declared: list[Definition]) -> None:
    first = declared[0]
    changed = Definition(name=first.name, retries=first.retries, timeout_ms=first.timeout_ms + 1)

    assert version_hash(declared) == version_hash(reversed(declared))
    assert version_hash(declared) != version_hash([*declared[1:], changed])
    assert len(version_hash(declared)) == 64


def test_spelling_does_not_change_the_hash() -> None:
    assert version_hash([one(timeout="7d", concurrency=2)]) == version_hash(
        [one(timeout="1w", concurrency={"limit": 2})]
    )
    assert version_hash([one()]) == version_hash([one(retries=3, timeout="30d", triggers=[])])
