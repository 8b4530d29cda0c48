"""Messages of the worker stream that are written out by hand are what the generated code writes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from runr.workflows.v1 import worker_service_pb2 as pb

from services.executor.worker_stream.entries import ack_entry, entry, key_field

KEYS = st.builds(
    pb.InvocationKey,
    run_id=st.text(max_size=120),
    epoch=st.integers(-(2**63), 2**63 - 1),
    invocation=st.integers(-(2**31), 2**31 - 1),
)
NUMBERS = st.integers(1, 300) | st.integers(-(2**31), 2**31 - 1) | st.integers(2**14 - 2, 2**14 + 2)


@given(
    key=KEYS,
    number=NUMBERS,
    outcome=st.sampled_from(pb.AckOutcome.values()[1:]),
    leave=st.sampled_from(pb.YieldReason.values()),
    step=st.none() | st.binary(max_size=300),
)
def test_an_acknowledgement_is_written_as_its_message_object_is(
    key: pb.InvocationKey, number: int, outcome: pb.AckOutcome, leave: pb.YieldReason, step: bytes | None
) -> None:
    ack = pb.Ack(key=key, number=number, outcome=outcome, yield_reason=leave, step=step)
    assert ack_entry(key_field(key), number, outcome, leave, step) == entry(pb.EngineMessage(ack=ack))


@given(st.lists(st.builds(pb.Heartbeat) | st.builds(pb.Drain, reason=st.text()) | st.builds(pb.Goodbye), max_size=5))
def test_entries_in_a_row_are_one_message_of_the_stream(kinds: list[pb.Heartbeat | pb.Drain | pb.Goodbye]) -> None:
    messages = [pb.EngineMessage(**{type(each).__name__.lower(): each}) for each in kinds]
    assert list(pb.ConnectResponse.FromString(b"".join(map(entry, messages))).messages) == messages
