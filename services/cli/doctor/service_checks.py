"""Asks each service whether it is ready, and what it has counted that should not be."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping

import aiohttp

from services.cli.doctor.finding import Finding, State
from services.cli.doctor.words import address_of, words_of

_TIMEOUT_S = 5.0
_ALL = "all"
_FINE = {"ok", "connected"}
_NOT_SENT = re.compile(r"^runr_hints_dropped_total\{[^}]*\} (\S+)$", re.MULTILINE)
_REPEATED = re.compile(r'^runr_duty_work_total\{[^}]*duty="rehint",[^}]*what="hinted"[^}]*\} (\S+)$', re.MULTILINE)
_LIVES_LOST = re.compile(r"^runr_executor_lives_lost_total\{[^}]*\} (\S+)$", re.MULTILINE)


async def services(health: Mapping[str, str]) -> AsyncIterator[Finding]:
    """The readiness of each service at its URL; of all of them at the first URL when one process serves all."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session:
        for name, url in health.items():
            advice = f"start it: `runr serve {name}`; elsewhere than RUNR_HEALTH_ADDR says, ask it there"
            try:
                async with session.get(url) as answer:
                    report = await answer.json()
                    checks: dict[str, str] = report["checks"]
            except (aiohttp.ClientError, TimeoutError) as error:
                yield Finding.of(f"{name} is ready", f"{address_of(url)}: {words_of(error)}", advice)
                continue
            except (KeyError, TypeError, ValueError):
                reason = f"{address_of(url)}: what answers there is not a service of RunR"
                yield Finding.of(f"{name} is ready", reason, advice)
                continue
            if report.get("service") == _ALL:
                # One process, one address: the other ports are not in use.
                for part, state in checks.items():
                    yield Finding.of(f"{part} is ready", "" if state == "ok" else state)
                return
            faults = ", ".join(f"{part}: {state}" for part, state in checks.items() if state not in _FINE)
            yield Finding.of(f"{name} is ready", "" if answer.status == 200 else faults, "its log says more")


async def counted(health: Mapping[str, str]) -> Mapping[str, float]:
    """Hints that were not sent, hints that were sent again, and lives of executors that were lost, of all that answer;
    each since its process began.
    """
    texts: list[str] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S)) as session:
        for place in sorted({url.replace("/readyz", "/metrics") for url in health.values()}):
            try:
                async with session.get(place) as answer:
                    texts.append(await answer.text() if answer.status == 200 else "")
            except (aiohttp.ClientError, TimeoutError, ValueError):
                continue
    told = "\n".join(texts)
    patterns = {"not sent": _NOT_SENT, "sent again": _REPEATED, "lives lost": _LIVES_LOST}
    return {what: sum(map(float, pattern.findall(told))) for what, pattern in patterns.items()}


def hints(before: Mapping[str, float], after: Mapping[str, float]) -> list[Finding]:
    """Whether hints are lost now, and executors were taken for dead, by two looks at what was counted."""
    lost = {what: max(0.0, after[what] - before[what]) for what in ("not sent", "sent again")}
    said = ", ".join(f"{count:.0f} were {what}" for what, count in lost.items() if count)
    lives = after["lives lost"]
    return [
        Finding.of(
            "hints arrive",
            f"{said} while this looked" if said else "",
            "nothing is lost, runs begin up to a second late: see docs/runbooks/hints-lost.md",
            state=State.WATCH,
        ),
        Finding.of(
            "executors are not taken for dead",
            f"it has happened {lives:.0f} times since they began" if lives else "",
            "see docs/runbooks/executor-taken-for-dead.md",
            state=State.WATCH,
        ),
    ]
