"""Signing keys that look like none: told when they are first used, whichever way, and never shown."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runr_workflows import SettingsError, Workflows
from runr_workflows.signing_key import key_doubt
from sdk.python.tests.engine import KEY, FakeEngine, envelope

GARBAGE = "hunter2hunter2"


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What is logged, with no key in the environment."""
    caplog.set_level(logging.INFO, "runr_workflows")
    monkeypatch.delenv("RUNR_WORKFLOW_SIGNING_KEY", raising=False)
    monkeypatch.delenv("RUNR_WORKFLOW_SIGNING_KEY_FALLBACK", raising=False)
    return caplog


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        (GARBAGE, "it does not begin with wfsk_"),
        ("null", "it does not begin with wfsk_"),
        (f"{KEY}\n", "it has blanks or a line break around it"),
        (f" {KEY}", "it has blanks or a line break around it"),
        (f'"{KEY}"', "it is in quotes"),
        (KEY[:-1], "it has only 47 characters, so a part may be missing"),
        ("wfsk_…", "it holds other characters"),
    ],
)
def test_what_is_odd_about_a_key_is_said(key: str, fault: str) -> None:
    doubt = key_doubt(key)
    assert doubt is not None
    assert doubt.startswith(f"does not look like a signing key of an engine: {fault} (")


@given(st.text(alphabet="ABCXYZabcxyz0189_-", min_size=43, max_size=60))
def test_what_an_engine_makes_is_no_garbage(random: str) -> None:
    assert key_doubt(f"wfsk_{random}") is None


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="wfsk_"), min_size=8))
def test_no_message_shows_a_key(key: str) -> None:
    doubt = key_doubt(key)
    assert doubt is not None
    assert key not in doubt


def test_it_is_told_once_and_the_key_still_works(warnings: pytest.LogCaptureFixture) -> None:
    wf = Workflows(signing_key=GARBAGE, clock=lambda: 1_700_000_000)
    assert warnings.text == ""
    body = envelope('{"type":"introspect"}', key=GARBAGE)
    assert [wf.handle_request(body, {})[0] for _ in range(3)] == [200, 200, 200]
    (line,) = (record.getMessage() for record in warnings.records)
    assert line.startswith("signing_key does not look like a signing key of an engine: it does not begin with wfsk_")
    assert GARBAGE not in line


@pytest.mark.parametrize("door", ["wsgi", "asgi", "handle_request"])
def test_every_door_tells_it_and_names_the_variable(
    door: str, warnings: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNR_WORKFLOW_SIGNING_KEY", KEY)
    monkeypatch.setenv("RUNR_WORKFLOW_SIGNING_KEY_FALLBACK", GARBAGE)
    arguments: tuple[Any, ...] = (b"{}", {}) if door == "handle_request" else ()
    getattr(Workflows(), door)(*arguments)
    told = [record.getMessage() for record in warnings.records if "look like" in record.getMessage()]
    assert [line.split()[0] for line in told] == ["RUNR_WORKFLOW_SIGNING_KEY_FALLBACK"]


def test_the_handler_of_function_platforms_tells_it_too(warnings: pytest.LogCaptureFixture) -> None:
    assert Workflows(signing_key=GARBAGE).handler is not None
    assert "signing_key does not look like" in warnings.text


def test_a_good_key_and_none_are_not_told(warnings: pytest.LogCaptureFixture) -> None:
    assert Workflows().wsgi() is not None
    wf = Workflows(signing_key=KEY, clock=lambda: 1_700_000_000)
    assert FakeEngine(wf.handle_request).introspect()["workflows"] == []
    assert warnings.text == ""


@pytest.mark.parametrize("option", ["signing_key", "signing_key_fallback"])
@pytest.mark.parametrize("key", [KEY.encode(), 7, ["a"], "\ud800"])
def test_what_can_be_no_key_is_refused_at_once(option: str, key: Any) -> None:
    options: dict[str, Any] = {option: key}
    with pytest.raises(SettingsError, match=f"^{option}: ") as caught:
        Workflows(**options)
    assert KEY not in str(caught.value)
