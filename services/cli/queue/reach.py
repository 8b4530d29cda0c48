"""Redis that comes and goes: a command is tried until it is answered."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as Unconnected
from redis.exceptions import TimeoutError as Unanswered

log = logging.getLogger(__name__)

_FIRST_S = 0.1
_MOST_S = 5.0
_DOUBLINGS = 6
# A replica that is not the primary yet, a server that loads its data, a script that runs: all of them pass.
_PASSING = ("LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY ", "OOM", "MISCONF", "NOREPLICAS")
_NO_GROUP = "NOGROUP"

Result = TypeVar("Result")
Given = ParamSpec("Given")


class PatientRedis:
    """Asks again while Redis is away. `ensure` makes the group, which a Redis that has lost its data lacks."""

    def __init__(self, ensure: Callable[[], Awaitable[None]], source: random.Random) -> None:
        self._ensure = ensure
        self._random = source
        self._away = False

    @property
    def is_away(self) -> bool:
        """Whether the last command had no answer."""
        return self._away

    async def ask(
        self, command: Callable[Given, Awaitable[Result]], *given: Given.args, **named: Given.kwargs
    ) -> Result:
        """The answer, however long it takes. Raises ResponseError for what will not pass."""
        failures = 0
        while True:
            try:
                answer = await command(*given, **named)
            except (RedisError, OSError) as error:
                if not is_passing(error):
                    raise
                self._tell(error)
                if _NO_GROUP in str(error):
                    await self._make_group()
            else:
                if self._away:
                    self._away = False
                    log.warning("redis answers again")
                return answer
            pause_s = min(_FIRST_S * 2 ** min(failures, _DOUBLINGS), _MOST_S)
            failures += 1
            await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.0))

    async def _make_group(self) -> None:
        """The entries that are there are delivered from the oldest on: what was accepted before is a duplicate."""
        try:
            await self._ensure()
        except (RedisError, OSError) as error:
            if not is_passing(error):
                raise

    def _tell(self, error: Exception) -> None:
        if not self._away:
            self._away = True
            log.warning("redis does not answer", extra={"fault": f"{type(error).__name__}: {error}"})


def is_passing(error: Exception) -> bool:
    """Whether it may go better later."""
    if isinstance(error, AuthenticationError):
        return False
    if isinstance(error, Unconnected | Unanswered | OSError):
        return True
    text = str(error)
    return isinstance(error, ResponseError) and (text.startswith(_PASSING) or _NO_GROUP in text)
