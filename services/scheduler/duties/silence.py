"""How long owners have been silent, as this process has seen it: it counts their beats over its own monotonic clock.

No clock that can be set has a say in it, so a step of one makes nobody look dead and keeps nobody alive.
"""

from __future__ import annotations

from collections.abc import Mapping


class Silence:
    """What was seen of each owner's beats since the last `forget`."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[int, float]] = {}
        self._have_beaten: set[int] = set()
        self._looked = False

    def look(self, beats: Mapping[int, int], now: float) -> None:
        """These owners are there and have beaten so often; `now` in seconds of the monotonic clock."""
        for owner, count in beats.items():
            known = self._seen.get(owner)
            if self._looked and (known is None or known[0] != count):
                self._have_beaten.add(owner)
            if known is None or known[0] != count:
                self._seen[owner] = (count, now)
        self._seen = {owner: seen for owner, seen in self._seen.items() if owner in beats}
        self._have_beaten.intersection_update(beats)
        self._looked = True

    def forget(self) -> None:
        """Nothing was heard for a while, from nobody: begin anew."""
        self._seen.clear()
        self._have_beaten.clear()
        self._looked = False

    def of(self, owner: int, now: float) -> float:
        """For how many seconds the owner was seen not to beat."""
        return now - self._seen[owner][1]

    def has_beaten(self, owner: int) -> bool:
        """Whether it was seen to beat, or to begin, since the last `forget`."""
        return owner in self._have_beaten
