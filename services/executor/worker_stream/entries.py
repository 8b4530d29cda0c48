"""Messages of the engine as bytes, as they stand in a message of the stream: several in a row are one such message.

Nearly all that an executor says are acknowledgements of results. Those are written out here, at a tenth of what their
message objects cost; everything else is written by the generated code.
"""

from __future__ import annotations

from runr.workflows.v1 import worker_service_pb2 as pb

_SHORT = 100
"""Up to this length a key leaves all lengths around it below 128, which take a byte each."""


def entry(message: pb.EngineMessage) -> bytes:
    """A message."""
    return bytes(pb.ConnectResponse(messages=[message]).SerializeToString())


def key_field(key: pb.InvocationKey) -> bytes:
    """The key of an invocation as it stands in its acknowledgements."""
    text = key.SerializeToString()
    return b"\n%c%b" % (len(text), text) if len(text) < 128 else bytes(pb.Ack(key=key).SerializeToString())


def ack_entry(key: bytes, number: int, outcome: int, leave: int, step: bytes | None) -> bytes:
    """An acknowledgement; `key` is from `key_field`, the rest are the fields of an Ack."""
    if step is not None or len(key) > _SHORT or not 0 < number < 1 << 14:
        ack = pb.Ack.FromString(key)
        ack.number, ack.outcome, ack.yield_reason = number, outcome, leave
        if step is not None:
            ack.step = step
        return entry(pb.EngineMessage(ack=ack))
    place = b"\x10%c" % number if number < 128 else b"\x10%c%c" % (number & 127 | 128, number >> 7)
    fields = b"%b\x18%c" % (place, outcome) if not leave else b"%b\x18%c\x20%c" % (place, outcome, leave)
    length = len(key) + len(fields)
    return b"\n%c\x1a%c%b%b" % (length + 2, length, key, fields)
