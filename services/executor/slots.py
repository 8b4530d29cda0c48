"""The slots of an executor: which leases take them, whose they are, and who was asked to make room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from services.core.runtime.clock import Clock
from services.executor.fair_share import excess, more
from services.executor.lease import Lease


@dataclass(slots=True, eq=False)
class _Taken:
    """A slot that is taken, since when by the monotonic clock."""

    lease: Lease
    since: float


class Slots:
    """A fixed number of places for leases. Asking a lease to leave takes effect when its step has ended."""

    def __init__(self, size: int, clock: Clock, *, slice_s: float = 1.0) -> None:
        """`slice_s`: for how long at least a run is held where tenants that hold none wait for its slot."""
        self.size = size
        self._clock = clock
        self._slice_s = slice_s
        self._taken: dict[int, _Taken] = {}

    @property
    def free(self) -> int:
        """Slots that nobody has."""
        return self.size - len(self._taken)

    @property
    def held(self) -> Mapping[int, int]:
        """How many each tenant has."""
        return Counter(taken.lease.tenant for taken in self._taken.values())

    def take(self, lease: Lease) -> None:
        """Give it a slot."""
        self._taken[id(lease)] = _Taken(lease, self._clock.monotonic())

    def give_back(self, lease: Lease) -> None:
        """It has left."""
        self._taken.pop(id(lease), None)

    def make_room(self, waiting: set[int]) -> None:
        """Ask leases to leave for those of these tenants, who wait, that may take no slot as it is.

        First those of tenants that hold more than their even share. If there is nobody else to ask, and tenants wait
        that hold no slot at all, those that were held longest: everybody gets a turn.
        """
        held, free = self.held, self.free
        waiting = {tenant for tenant in waiting if more(held.get(tenant, 0), free) == 0}
        staying = [taken for taken in self._taken.values() if not taken.lease.leave]
        coming = len(self._taken) - len(staying)
        wanted = excess(Counter(taken.lease.tenant for taken in staying), waiting, self.size, coming)
        for taken in staying:  # in the order in which they were taken
            if wanted.get(taken.lease.tenant, 0) > 0:
                wanted[taken.lease.tenant] -= 1
                taken.lease.leave = True
                coming += 1
        hungry = len(waiting - held.keys()) - coming
        old = self._clock.monotonic() - self._slice_s
        for taken in staying[: max(0, hungry)]:
            if taken.since <= old:
                taken.lease.leave = True
