"""Pages, words and times of the RPC layer."""

from __future__ import annotations

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given
from hypothesis import strategies as st
from runr.workflows.v1 import resources_pb2, run_service_pb2

from services.core.domain import errors
from services.core.domain.errors import DomainError, InvalidInput
from services.core.domain.run import Status
from services.core.rpc import convert, paging
from services.core.rpc.status import TABLE, from_status, row_of, to_status

ListRuns = run_service_pb2.ListRunsRequest

STORABLE = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
"""What a text column can hold."""


def subclasses(base: type[DomainError]) -> list[type[DomainError]]:
    return [base, *(found for child in base.__subclasses__() for found in subclasses(child))]


def test_every_error_of_the_domain_has_its_own_row() -> None:
    own = [error for error in subclasses(DomainError) if error.__module__ == errors.__name__]
    assert {row.error for row in TABLE} == set(own)
    for error in own:
        assert row_of(error("text")).error is error


def test_a_more_exact_error_travels_as_its_kind_with_its_reason() -> None:
    class BadDuration(InvalidInput):
        reason = "BAD_DURATION"

    got = from_status(to_status(BadDuration("no", metadata={"value": "1y"})))
    assert (type(got), got.reason, got.metadata) == (InvalidInput, "BAD_DURATION", {"value": "1y"})


@given(st.text(STORABLE, max_size=50), st.integers(0, 2**31 - 1))
def test_a_page_token_gives_back_its_position(name: str, at: int) -> None:
    request = ListRuns(project="p", workflow="w")
    request.page_token = paging.next_token(request, [name, at])
    request.page_size = 17
    assert paging.position_of(request, str, int) == [name, at]


@given(
    st.text(STORABLE, max_size=20) | st.just("a\0b"),
    st.integers(0, 2**31 - 1) | st.integers(-(2**70), -1) | st.integers(2**31, 2**70),
)
def test_a_page_token_that_somebody_made_holds_nothing_that_no_column_could(name: str, at: int) -> None:
    request = ListRuns(project="p")
    request.page_token = paging.next_token(request, [name, at])
    if "\0" not in name and 0 <= at < 2**31:
        assert paging.position_of(request, str, int) == [name, at]
        return
    with pytest.raises(InvalidInput) as refused:
        paging.position_of(request, str, int)
    assert (refused.value.reason, refused.value.errors[0].path) == ("BAD_PAGE_TOKEN", "page_token")


def test_a_page_token_holds_for_its_filter_only() -> None:
    token = paging.next_token(ListRuns(project="p"), ["x"])
    assert paging.position_of(ListRuns(project="p"), str) is None
    with pytest.raises(InvalidInput, match="another filter"):
        paging.position_of(ListRuns(project="q", page_token=token), str)
    with pytest.raises(InvalidInput, match="not a token"):
        paging.position_of(ListRuns(project="p", page_token=token), int)


@given(st.text(min_size=1, max_size=100))
def test_any_other_text_is_no_page_token(text: str) -> None:
    request = ListRuns(page_token=text.encode(errors="replace").decode())
    with pytest.raises(InvalidInput, match="page_token"):
        paging.position_of(request, str)


@pytest.mark.parametrize(("asked", "given_size"), [(-1, 50), (0, 50), (1, 1), (200, 200), (201, 200)])
def test_a_page_size_is_clamped(asked: int, given_size: int) -> None:
    assert paging.page_size(asked) == given_size


def test_the_words_of_states_are_those_of_the_domain() -> None:
    shown = {status.shown for status in Status}
    assert set(convert.words(resources_pb2.RunState)) == shown
    for text in shown:
        assert convert.word(resources_pb2.RunState, convert.number(resources_pb2.RunState, text)) == text


@pytest.mark.parametrize("text", ["", "unspecified", "RUNNING", "run_state_running", "nothing"])
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be one of queued, running"):
        convert.number(resources_pb2.RunState, text)


@given(st.integers(0, 253_402_300_799_999))
def test_times_keep_their_milliseconds(unix_ms: int) -> None:
    run = resources_pb2.Run(created_at=convert.timestamp(unix_ms))
    assert convert.unix_ms(run, "created_at") == unix_ms
    assert convert.unix_ms(run, "ended_at") is None


@given(st.integers(0, 315_576_000_000_000))
def test_durations_keep_their_milliseconds(milliseconds: int) -> None:
    request = run_service_pb2.StartRunRequest(delay=convert.duration(milliseconds))
    assert convert.duration_ms(request, "delay") == milliseconds


def test_times_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidInput, match="delay"):
        convert.duration_ms(run_service_pb2.StartRunRequest(delay=Duration(seconds=-1)), "delay")
    with pytest.raises(InvalidInput, match="at"):
        convert.unix_ms(run_service_pb2.StartRunRequest(at=Timestamp(nanos=2_000_000_000)), "at")
