"""A coroutine without a task: it goes on by what it waits for."""

from __future__ import annotations

import asyncio
from typing import Any

from runr_workflows.serving.driven import Driven


def driven(coroutine: Any) -> Driven:
    made = Driven(coroutine, asyncio.get_running_loop())
    made.go_on()
    return made


async def test_it_begins_at_once_and_goes_on_with_what_it_waits_for() -> None:
    loop = asyncio.get_running_loop()
    given, refused, ended = loop.create_future(), loop.create_future(), loop.create_future()
    seen: list[object] = []

    async def work() -> None:
        seen.append("begins")
        seen.append(await given)
        await asyncio.sleep(0)
        try:
            await refused
        except ValueError as error:
            seen.append(str(error))
        ended.set_result(None)

    driven(work())
    assert seen == ["begins"]
    given.set_result("value")
    refused.set_exception(ValueError("fault"))
    await ended

    assert seen == ["begins", "value", "fault"]


async def test_a_cancellation_comes_to_what_is_waited_for() -> None:
    waited = asyncio.get_running_loop().create_future()
    ended = asyncio.get_running_loop().create_future()
    seen: list[str] = []

    async def work() -> None:
        for future in (waited, asyncio.sleep(0)):
            try:
                await future
            except asyncio.CancelledError:
                seen.append("cancelled")
        try:
            await asyncio.sleep(0)
        finally:
            ended.set_result(None)

    made = driven(work())
    made.cancel()
    assert waited.cancelled()
    while len(seen) < 1:
        await asyncio.sleep(0)
    made.cancel()  # in a pass of the loop
    await ended

    assert seen == ["cancelled", "cancelled"]


async def test_errors_are_told_to_the_loop() -> None:
    told: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(context))

    async def work() -> None:
        await asyncio.sleep(0)
        raise ValueError("fault")

    driven(work())
    while not told:
        await asyncio.sleep(0)

    assert str(told[0]["exception"]) == "fault"
