"""An acceptor of events over a hand's database, events for it, and runs and waits that they may hit."""

from __future__ import annotations

import json
import random
from typing import Any
from uuid import UUID

import pytest

from services.core.domain.matching import event_value, wait_key
from services.core.domain.op import WaitForEvent
from services.core.domain.run import Status
from services.core.engine.accept_events import EventAcceptor
from services.core.engine.accept_plan import Incoming
from services.core.engine.dedupe import Accepted
from services.core.engine.definitions import DefinitionsCache
from services.core.engine.hints import Hints
from services.core.runtime.clock import SystemClock
from services.core.runtime.ids import UlidFactory
from tests.support.hand import Hand
from tests.support.live_rows import LiveRows, Recorder

ON_A = {"name": "work", "triggers": [{"event": "a"}]}


@pytest.fixture
def acceptor(hand: Hand, recorder: Recorder) -> EventAcceptor:
    return make_acceptor(hand, recorder)


def make_acceptor(hand: Hand, recorder: Recorder) -> EventAcceptor:
    ids = UlidFactory(SystemClock(), random.Random())
    return EventAcceptor(hand.database, DefinitionsCache(None), Hints(recorder), ids)


def event(name: str, data: object = None, id: str | None = None, **fields: Any) -> Incoming:
    return Incoming(name=name, data=json.dumps(data if data is not None else {}), event_id=id, **fields)


async def waiting(hand: Hand, name: str, data: str = "{}", sid: str = "w", **op: Any) -> UUID:
    """A run of `work`, started with this data, that waits for an event."""
    run = await hand.start("work", data)
    assert await hand.answer(run, WaitForEvent(id=sid, name=sid, event=name, **op)) is Status.WAITING
    return run


async def effects(rows: LiveRows, accepted: Accepted) -> Any:
    return json.loads(await rows.value("select effects from rt.events where id = $1", accepted.id))


def keys(name: str, condition: str | None, trigger: object = None) -> dict[str, Any]:
    key = wait_key(name, condition, event_value(id="1", name="a", data=json.dumps(trigger or {}), ts=0))
    return {"name_h": key.name_h, "path": key.path, "path_h": key.path_h, "val_h": key.val_h, "cond": key.condition}
