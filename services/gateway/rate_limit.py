"""How many requests a token may make a second, counted in this process: each replica lets through as many."""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from services.core.domain.errors import RateLimited, Unauthenticated
from services.core.rpc.authorize import bearer_token
from services.core.runtime.clock import Clock
from services.gateway.session import COOKIES

_TOKENS = 10_000
"""Tokens that are counted apart. The one that was not heard of for the longest time is forgotten for another."""

_KEY_BYTES = 16
_POLICY = "token"


@dataclass(slots=True)
class _Bucket:
    left: float
    filled_s: float


class RateLimit:
    """A bucket of `burst` requests for each token, filled by `per_second`."""

    def __init__(self, per_second: int, burst: int, clock: Clock) -> None:
        self._per_second = per_second
        self._burst = max(burst, per_second)
        self._clock = clock
        self._buckets: OrderedDict[bytes, _Bucket] = OrderedDict()

    @property
    def policy(self) -> str:
        """The limit, as the header `RateLimit-Policy` tells it."""
        return f'"{_POLICY}";q={self._burst};w={math.ceil(self._burst / self._per_second)}'

    def take(self, credential: str) -> str:
        """One request of a credential; what is left, as the header `RateLimit` tells it. Raises RateLimited."""
        now = self._clock.monotonic()
        bucket = self._bucket(credential, now)
        bucket.left = min(self._burst, bucket.left + (now - bucket.filled_s) * self._per_second)
        bucket.filled_s = now
        if bucket.left < 1.0:
            wait_s = max(1, math.ceil((1.0 - bucket.left) / self._per_second))
            raise RateLimited(
                f"this token may make {self._per_second} requests a second",
                metadata={"retry_after_s": str(wait_s), "rate_limit": self._told(bucket)},
            )
        bucket.left -= 1.0
        return self._told(bucket)

    def _bucket(self, credential: str, now: float) -> _Bucket:
        key = hashlib.blake2b(credential.encode(errors="replace"), digest_size=_KEY_BYTES).digest()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(float(self._burst), now)
            if len(self._buckets) > _TOKENS:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return bucket

    def _told(self, bucket: _Bucket) -> str:
        return f'"{_POLICY}";r={int(bucket.left)};t={math.ceil((self._burst - bucket.left) / self._per_second)}'


def limiting(limit: RateLimit) -> Middleware:
    """Refuses what is over the limit, and tells what is left. Requests without a credential are answered as they are:
    with 401, or because they need none.
    """

    @web.middleware
    async def limited(request: web.Request, handler: Handler) -> web.StreamResponse:
        credential = _credential(request)
        if credential is None:
            return await handler(request)
        left = limit.take(credential)
        response = await handler(request)
        if not response.prepared:
            response.headers["RateLimit-Policy"] = limit.policy
            response.headers["RateLimit"] = left
        return response

    return limited


def _credential(request: web.Request) -> str | None:
    """The secret that a request comes with, however its headers write it: else each way to write it, and each other
    cookie beside it, would have a bucket of its own.
    """
    authorization = request.headers.get("Authorization")
    if authorization is None:
        return request.cookies.get(request.app[COOKIES].session_name) or None
    try:
        return bearer_token(authorization)
    except Unauthenticated:
        return None
