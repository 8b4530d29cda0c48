"""The concurrency limits of a workflow as the rule for its gates (engine section 5, `concurrency`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from services.core.domain.definition import ConcurrencyLimit
from services.core.domain.json_value import hash_value


class GateRule(NamedTuple):
    """`limits`: a key expression ("" for none) and how many runs may have one value of it, in the order of the keys.

    `keys` tells whether other rules have the same keys, whatever their numbers.
    """

    keys: int
    limits: tuple[tuple[str, int], ...]


class RunGates(NamedTuple):
    """The gates of a run by the rule that its workflow had at a version (0: no limits), in the order of the rule."""

    version: int
    first: int | None
    second: int | None

    @property
    def pair(self) -> tuple[int | None, int | None]:
        """Both, the only one and None, or none at all."""
        return self.first, self.second

    @property
    def present(self) -> tuple[int, ...]:
        """Those that there are."""
        if self.first is None and self.second is None:
            return ()
        return tuple(gate for gate in self.pair if gate is not None)


NO_GATES = RunGates(0, None, None)


def gate_rule(concurrency: Sequence[ConcurrencyLimit]) -> GateRule:
    """The rule that these limits make. Their order means nothing; of two with the same key the smaller one holds."""
    limits: dict[str, int] = {}
    for limit in concurrency:
        key = limit.key or ""
        limits[key] = min(limit.limit, limits.get(key, limit.limit))
    in_order = tuple(sorted(limits.items()))
    return GateRule(hash_value([key for key, _ in in_order]), in_order)
