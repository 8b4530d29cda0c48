"""An event as the step that waited for it gets it."""

from __future__ import annotations

import json
from uuid import UUID

from services.core.runtime.ids import ulid_text


def event_payload(id: UUID, name: str, data: str, ts: int) -> str:
    """`{id, name, data, ts}` as JSON text; the data byte for byte as it was sent."""
    return f'{{"id":"{ulid_text(id)}","name":{json.dumps(name)},"data":{data},"ts":{ts}}}'
