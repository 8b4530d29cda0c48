"""The message with which a worker brings its invocations along to a new stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runr.workflows.v1 import worker_service_pb2 as pb

from .live_invocation import Key, LiveInvocation
from .outbox import Outbox, write_key, write_op

_MESSAGE_BYTES = 8 * 1024 * 1024


def bring_message(
    living: Iterable[LiveInvocation], unknown: Iterable[pb.InvocationKey], outbox: Outbox
) -> tuple[pb.WorkerMessage, dict[Key, int]]:
    """A Bring of these, and each invocation's last op in it: see `resume_message`."""
    message = pb.WorkerMessage()
    message.bring.unknown.extend(unknown)
    return message, _name(message.bring.items, living, outbox)


def resume_message(
    living: Iterable[LiveInvocation], ended: Iterable[Key], outbox: Outbox
) -> tuple[pb.WorkerMessage, dict[Key, int]]:
    """A Resume of everything, and each invocation's last op in it, by number. Of invocations that ended, only the key.

    `outbox` counts the ops as sent. What is too much for one message is left for after the answer.
    """
    message = pb.WorkerMessage()
    message.resume.SetInParent()
    sent = _name(message.resume.items, living, outbox)
    for key in ended:
        write_key(message.resume.items.add().key, key)
        sent[key] = 0
    return message, sent


def _name(items: Any, living: Iterable[LiveInvocation], outbox: Outbox) -> dict[Key, int]:
    size = 0
    sent: dict[Key, int] = {}
    for live in living:
        item = items.add()
        write_key(item.key, live.key)
        sent[live.key] = 0
        for number, op in live.unacked.items():
            size += len(op.text)
            if size > _MESSAGE_BYTES:
                break
            write_op(item.unacked.add(), live.key, op)
            outbox.count(op)
            sent[live.key] = number
    return sent


def key_of(message: pb.InvocationKey) -> Key:
    """The key in a message."""
    return Key(message.run_id, message.epoch, message.invocation)
