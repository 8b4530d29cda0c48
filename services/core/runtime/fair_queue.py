"""A queue that is fair over whom its items are for: who has very many waits behind nobody's few."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class _Entry(NamedTuple, Generic[T]):
    item: T
    weight: int
    since: float


class FairQueue(Generic[T]):
    """Items of keys, each key's in the order of coming. What is taken goes round the keys, one item each."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, deque[_Entry[T]]] = {}
        self._count = 0
        self.weight = 0
        """Of all items together."""

    def __len__(self) -> int:
        return self._count

    def put(self, key: Hashable, item: T, *, weight: int, now: float) -> None:
        """Add an item at the end of its key's. `now` is a monotonic clock's time in seconds."""
        self._waiting.setdefault(key, deque()).append(_Entry(item, weight, now))
        self._count += 1
        self.weight += weight

    def oldest(self, key: Hashable) -> float | None:
        """When the first of a key's items came; None when it has none."""
        entries = self._waiting.get(key)
        return entries[0].since if entries else None

    def take(self, most: int, most_weight: int) -> list[T]:
        """The next items: no more than `most`, and of no more than `most_weight` unless it is a single one."""
        taken: list[T] = []
        room = most_weight
        while self._waiting and len(taken) < most:
            key, entries = next(iter(self._waiting.items()))
            if taken and entries[0].weight > room:
                break
            entry = self._pop(key, entries)
            room -= entry.weight
            taken.append(entry.item)
            if entries and len(self._waiting) > 1:
                self._waiting[key] = self._waiting.pop(key)  # behind the other keys
        return taken

    def take_older(self, than: float) -> list[T]:
        """All items that came before a time."""
        taken: list[T] = []
        for key, entries in list(self._waiting.items()):
            while entries and entries[0].since < than:
                taken.append(self._pop(key, entries).item)
        return taken

    def _pop(self, key: Hashable, entries: deque[_Entry[T]]) -> _Entry[T]:
        entry = entries.popleft()
        self._count -= 1
        self.weight -= entry.weight
        if not entries:
            del self._waiting[key]
        return entry
