"""The message with which a worker brings its invocations along to a new stream."""

from __future__ import annotations

from collections.abc import Iterable

from runr.workflows.v1 import worker_service_pb2 as pb

from .live_invocation import Key, LiveInvocation
from .outbox import Outbox, write_key, write_op

_MESSAGE_BYTES = 8 * 1024 * 1024


def resume_message(
    living: Iterable[LiveInvocation], ended: Iterable[Key], outbox: Outbox
) -> tuple[pb.WorkerMessage, dict[Key, int]]:
    """A Resume of everything, and each invocation's last op in it, by number. Of invocations that ended, only the key.

    `outbox` counts the ops as sent. What is too much for one message is left for after the answer.
    """
    message, size = pb.WorkerMessage(), 0
    message.resume.SetInParent()
    sent: dict[Key, int] = {}
    for live in living:
        item = message.resume.items.add()
        write_key(item.key, live.key)
        sent[live.key] = 0
        for number, op in live.unacked.items():
            size += len(op.text)
            if size > _MESSAGE_BYTES:
                break
            write_op(item.unacked.add(), live.key, op)
            outbox.count(op)
            sent[live.key] = number
    for key in ended:
        write_key(message.resume.items.add().key, key)
        sent[key] = 0
    return message, sent


def key_of(message: pb.InvocationKey) -> Key:
    """The key in a message."""
    return Key(message.run_id, message.epoch, message.invocation)
