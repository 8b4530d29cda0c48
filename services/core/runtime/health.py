"""Whether a process may get work. `HealthServer` tells it over HTTP.

Readiness is real: every check that components registered is asked each time. Reasons name the dependency and the
kind of fault only, never an address or a secret.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

Check = Callable[[], Awaitable[None]]

_CHECK_TIMEOUT_S = 2.0


class NotReady(Exception):
    """Raised by a check; its text is shown to whoever asks, so it must not hold secrets."""


class Health:
    """The readiness of one process: not ready until started, not ready again from the first moment of a drain."""

    def __init__(self, whole: Health | None = None) -> None:
        self._checks: dict[str, Check] = {}
        self._states: dict[str, Callable[[], str]] = {}
        self._whole = whole
        self._phase = "starting"

    def part(self, name: str) -> Health:
        """The readiness of one service among several in the process: own checks, shared life."""
        part = Health(self)

        async def check() -> None:
            report = await part._ask_all()
            faults = [f"{asked}: {reason}" for asked, reason in report.items() if reason != "ok"]
            if faults:
                raise NotReady(", ".join(faults))

        self.register(name, check)
        return part

    def register(self, name: str, check: Check) -> None:
        """Adds a check that raises when its dependency cannot be used; `NotReady` to say why."""
        if name in self._checks:
            raise ValueError(f"a readiness check named {name} exists already")
        self._checks[name] = check

    def observe(self, name: str, state: Callable[[], str]) -> None:
        """Adds a state that readiness tells and that decides nothing: of a dependency the service can do without."""
        self._states[name] = state

    def set_started(self) -> None:
        """All components run; from now on the checks decide."""
        self._phase = "started"

    def set_draining(self) -> None:
        """The process takes no new work; final."""
        self._phase = "draining"

    @property
    def is_draining(self) -> bool:
        """Whether the process is on its way to its end."""
        return (self._whole or self)._phase == "draining"

    async def readiness(self) -> tuple[bool, Mapping[str, str]]:
        """Whether the process may get work; `ok` or the reason for the process and each check, and observed states."""
        phase = self._whole._phase if self._whole else self._phase
        report = {"process": "ok" if phase == "started" else phase, **await self._ask_all()}
        ready = all(reason == "ok" for reason in report.values())
        return ready, report | {name: state() for name, state in self._states.items()}

    async def _ask_all(self) -> dict[str, str]:
        results = await asyncio.gather(*(_ask(check) for check in self._checks.values()))
        return dict(zip(self._checks, results, strict=True))


async def _ask(check: Check) -> str:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_S):
            await check()
    except NotReady as error:
        return str(error) or "not ready"
    except TimeoutError:
        return f"no answer within {_CHECK_TIMEOUT_S:g} s"
    except Exception as error:
        # The text of a foreign error may hold an address or a password.
        return type(error).__name__
    return "ok"
