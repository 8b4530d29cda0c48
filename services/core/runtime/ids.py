"""ULIDs: 48 bits of milliseconds and 80 bits of random, kept as a `uuid.UUID` and shown as 26 Crockford letters.

Both forms sort by time of creation. Within one millisecond, and when the wall clock steps back, a factory counts on
from its last id, so ids of one process always rise.
"""

from __future__ import annotations

import base64
import random
import uuid

from services.core.runtime.clock import Clock

_CROCKFORD = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# Ten bits are two letters: an id is thirteen of these.
_PAIRS = [one + other for one in _CROCKFORD.decode() for other in _CROCKFORD.decode()]
_RFC4648 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_TO_CROCKFORD = bytes.maketrans(_RFC4648, _CROCKFORD)
_TO_RFC4648 = bytes.maketrans(_CROCKFORD, _RFC4648)
_ALPHABET = frozenset(_CROCKFORD.decode())
_TEXT_LENGTH = 26
# 26 letters hold 130 bits. Four zero bytes in front make 160, a whole number of base32 groups: six letters of padding.
_PAD_BYTES = bytes(4)
_PAD_LETTERS = 6
_RANDOM_BITS = 80
_LOW_BITS = (1 << 60) - 1

_new, _set = object.__new__, object.__setattr__
_UNKNOWN = uuid.SafeUUID.unknown


class UlidFactory:
    """Makes rising ULIDs. Not thread-safe: one per event loop."""

    def __init__(self, clock: Clock, source: random.Random) -> None:
        self._clock = clock
        self._random = source
        self._last = 0

    def now_ms(self) -> int:
        """What the clock shows that ids are stamped by, unix milliseconds."""
        return self._clock.unix_ms()

    def new(self) -> uuid.UUID:
        """The next id, greater than every id this factory made before."""
        return self.block(1)

    def block(self, count: int) -> uuid.UUID:
        """The first of `count` ids in a row, all greater than every id this factory made before: see `ids_from`."""
        fresh = (self._clock.unix_ms() << _RANDOM_BITS) | self._random.getrandbits(_RANDOM_BITS)
        if fresh >> _RANDOM_BITS <= self._last >> _RANDOM_BITS:
            fresh = self._last + 1
        self._last = fresh + count - 1
        return uuid_of(fresh)


def ids_from(first: uuid.UUID, count: int) -> list[uuid.UUID]:
    """`count` ids in a row."""
    return [uuid_of(number) for number in range(first.int, first.int + count)]


def uuid_of(number: int) -> uuid.UUID:
    """`uuid.UUID(int=number)` without its checks, which cost three times as much: `number` has 128 bits at most."""
    made = _new(uuid.UUID)
    _set(made, "int", number)
    _set(made, "is_safe", _UNKNOWN)
    return made


def ulid_text(value: uuid.UUID) -> str:
    """The 26-letter Crockford form of an id."""
    # By halves, which are small numbers to Python; every run and event is named several times on its way.
    pairs, number = _PAIRS, value.int
    high, low = number >> 60, number & _LOW_BITS
    return (
        f"{pairs[high >> 60]}{pairs[high >> 50 & 1023]}{pairs[high >> 40 & 1023]}{pairs[high >> 30 & 1023]}"
        f"{pairs[high >> 20 & 1023]}{pairs[high >> 10 & 1023]}{pairs[high & 1023]}"
        f"{pairs[low >> 50]}{pairs[low >> 40 & 1023]}{pairs[low >> 30 & 1023]}"
        f"{pairs[low >> 20 & 1023]}{pairs[low >> 10 & 1023]}{pairs[low & 1023]}"
    )


def ulid_uuid(text: str) -> uuid.UUID:
    """The id behind a 26-letter text, in either case. Raises ValueError for anything else."""
    upper = text.upper()
    if len(text) != _TEXT_LENGTH or not _ALPHABET.issuperset(upper) or upper[0] > "7":
        raise ValueError("expected a ULID: 26 characters of 0-9 and A-Z without I, L, O and U, the first at most 7")
    padded = b"A" * _PAD_LETTERS + upper.encode().translate(_TO_RFC4648)
    return uuid.UUID(bytes=base64.b32decode(padded)[len(_PAD_BYTES) :])


def ulid_unix_ms(value: uuid.UUID) -> int:
    """The creation time inside an id, milliseconds since 1970."""
    return value.int >> _RANDOM_BITS
