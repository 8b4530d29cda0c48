"""The consumer of a Redis stream: every entry is delivered to the queue bridge, and acknowledged when that has it.

An entry stays in the group's list of pending ones from when it was read until it was accepted or buried, and another
consumer takes it when its own has been silent for `claim_after_s`. So nothing is lost by whatever dies. What is
delivered twice the engine knows by its id.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from redis.exceptions import RedisError

from services.cli.api import ApiFailure
from services.cli.queue.address import SinkAddress
from services.cli.queue.entry import Entry
from services.cli.queue.gate import Gate
from services.cli.queue.reach import PatientRedis, is_passing
from services.cli.queue.sink import Outcome, Sink, Verdict
from services.cli.queue.stream import ConsumerGroup
from services.core.domain.retry import backoff_ms
from services.core.runtime.lifecycle import Component, StartRefused

log = logging.getLogger(__name__)

_BLOCK_MS = 1_000
_HELD_PER_DELIVERY = 8
_LEAST_HELD = 64
_CLAIMED_AT_ONCE = 100
_WRONG_ADDRESS_S = 5.0
_END = "0-0"
_NEVER_MS = 2**40

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`in_flight` deliveries at once; an entry is buried when the delivery that fails is the `max_deliveries`-th or a
    later one; `claim_after_s` is how long a consumer may be silent.
    """

    in_flight: int = 16
    max_deliveries: int = 5
    claim_after_s: float = 60.0


@dataclass(slots=True)
class Counts:
    """What was done since the start."""

    accepted: int = 0
    duplicates: int = 0
    buried: int = 0


class QueueConsumer(Component):
    """Reads, delivers, acknowledges, until it is drained."""

    name = "queue-consumer"

    def __init__(
        self,
        group: ConsumerGroup,
        sink: Sink,
        address: SinkAddress,
        rules: Rules,
        source: random.Random,
        *,
        about: dict[str, str],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        """`about` is told in dead letters; `sleep` is how the pause between two deliveries is spent."""
        self._group = group
        self._sink = sink
        self._address = address
        self._rules = rules
        self._random = source
        self._about = about
        self._sleep = sleep
        self.gate = Gate(source)
        self.redis = PatientRedis(group.ensure, source)
        self.counts = Counts()
        self._silent_ms = round(rules.claim_after_s * 1_000)
        self._most_held = max(_LEAST_HELD, rules.in_flight * _HELD_PER_DELIVERY)
        self._held: dict[str, asyncio.Task[None]] = {}
        self._left: list[str] = []
        self._busy: set[str] = set()
        self._pausing = 0
        self._slots = asyncio.Semaphore(rules.in_flight)
        self._room = asyncio.Event()
        self._closing = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    @property
    def held(self) -> int:
        """How many entries it has in hand."""
        return len(self._held)

    async def start(self) -> None:
        """Makes the group. Raises StartRefused for what Redis will never do; one that is away is waited for later."""
        try:
            await self._group.ensure()
            await self._group.claim(1, idle_ms=_NEVER_MS)  # whether Redis knows the command, and we may use it
        except (RedisError, OSError) as error:
            if not is_passing(error):
                raise StartRefused(f"redis refuses: {error}") from error
            log.warning("redis is not there yet: %s", type(error).__name__)

    async def run(self) -> None:
        """See `Component.run`."""
        async with asyncio.TaskGroup() as group:
            self._reading = group.create_task(self._read(), name="queue-read")
            others = [group.create_task(each(), name=each.__name__) for each in (self._claim, self._keep)]
            await self._reading
            await self._closing.wait()
            for task in others:
                task.cancel()
        await asyncio.Event().wait()

    async def drain(self) -> None:
        """Takes no more; what is on its way ends, the rest is left to other consumers at once."""
        self._closing.set()
        self._room.set()
        away = self.redis.is_away
        for entry_id, task in self._held.items():
            if away or entry_id not in self._busy:
                task.cancel()
        if self._reading is not None:
            if away:
                self._reading.cancel()
            await asyncio.wait({self._reading})
        while self._held:
            await asyncio.wait(set(self._held.values()))
        await self._leave_to_others()

    async def stop(self) -> None:
        """See `Component.stop`. What a drain had no time for is left to others too."""
        self._closing.set()
        for task in list(self._held.values()):
            task.cancel()
        if self._held:
            await asyncio.wait(set(self._held.values()))
        self.gate.close()
        await self._leave_to_others()
        with suppress(RedisError, OSError):
            await self._group.leave()
        log.info("deliveries", extra=asdict(self.counts))

    async def _read(self) -> None:
        while not self._closing.is_set():
            await self._unless_closing(self.gate.passable())
            await self._have_room()
            if self._closing.is_set():
                return
            most = self._free()
            # Not to be broken off: an answer that nobody reads has given us entries nevertheless.
            found = await self.redis.ask(self._group.read, most, block_ms=_BLOCK_MS)
            if self._closing.is_set():
                self._left += [entry.id for entry in found]
                return
            for entry in found:
                self._take(entry)

    async def _claim(self) -> None:
        """Take over what other consumers have left, at once and then again and again."""
        while True:
            cursor = ""
            while cursor != _END:
                await self._have_room()
                if self._closing.is_set():
                    return
                most = min(self._free(), _CLAIMED_AT_ONCE)
                found, cursor = await self.redis.ask(
                    self._group.claim, most, idle_ms=self._silent_ms, cursor=cursor or _END
                )
                for entry in found:
                    self._take(entry)
            await self.redis.ask(self._group.forget_the_dead)
            await asyncio.sleep(self._rules.claim_after_s / 2)

    async def _keep(self) -> None:
        """Say that what is held is worked on."""
        while True:
            await asyncio.sleep(self._rules.claim_after_s / 4)
            await self.redis.ask(self._group.hold, list(self._held))

    def _take(self, entry: Entry) -> None:
        if entry.id in self._held:
            return
        task = asyncio.create_task(self._carry(entry), name=f"queue-{entry.id}")
        self._held[entry.id] = task
        task.add_done_callback(lambda task: self._forget(entry.id, task))

    def _forget(self, entry_id: str, task: asyncio.Task[None]) -> None:
        del self._held[entry_id]
        if task.cancelled():
            self._left.append(entry_id)
        self._room.set()

    async def _carry(self, entry: Entry) -> None:
        """Deliver one entry until it is accounted for."""
        try:
            while not await self._settle(entry):
                self._pausing += 1
                self._room.set()
                try:
                    await self._sleep(backoff_ms(entry.deliveries, self._random.uniform(0.8, 1.2)) / 1_000)
                finally:
                    self._pausing -= 1
                entry = replace(entry, deliveries=entry.deliveries + 1)
                if not await self.redis.ask(self._group.again, entry):
                    return
        except Exception:
            # Not this entry's fault alone, perhaps: it stays pending, and comes again when it was silent long enough.
            log.exception("an entry was not delivered", extra={"entry": entry.id})

    async def _settle(self, entry: Entry) -> bool:
        """One delivery; False when there is to be another one."""
        verdict = await self._deliver(entry)
        self._busy.add(entry.id)
        try:
            if verdict.outcome is Outcome.ACCEPTED:
                await self.redis.ask(self._group.acknowledge, entry.id)
                self.counts.accepted += 1
                self.counts.duplicates += verdict.duplicate
                return True
            if verdict.outcome is Outcome.REFUSED and entry.deliveries < self._rules.max_deliveries:
                log.info("a message failed", extra={"entry": entry.id, "reason": verdict.reason})
                self._unless_draining()
                return False
            letter = self._letter(entry, verdict)
            await self.redis.ask(self._group.bury, entry, letter)
            self.counts.buried += 1
            log.error("a message is a dead letter", extra={"entry": entry.id, "reason": verdict.reason})
            return True
        finally:
            self._busy.discard(entry.id)

    async def _deliver(self, entry: Entry) -> Verdict:
        """What the engine says of the message itself: while it says nothing of it, it is asked again."""
        while True:
            async with self._slots:
                await self.gate.enter()
                self._busy.add(entry.id)
                try:
                    verdict = await self._sink.post(entry)
                except BaseException:
                    self.gate.abandon()
                    raise
                finally:
                    self._busy.discard(entry.id)
            if verdict.outcome not in (Outcome.AWAY, Outcome.WRONG_ADDRESS):
                if not self.gate.is_open:
                    log.warning("the engine takes messages again")
                self.gate.succeed()
                return verdict
            await self._wait_out(verdict)
            self._unless_draining()

    async def _wait_out(self, verdict: Verdict) -> None:
        """Nothing is wrong with the message: all of them wait."""
        wrong = verdict.outcome is Outcome.WRONG_ADDRESS
        was_open = self.gate.is_open
        pause_s = self.gate.fail(_WRONG_ADDRESS_S if wrong else verdict.retry_after_s)
        if was_open:
            tell = log.error if wrong else log.warning
            tell(
                "no message is taken: %s", verdict.reason, extra={"host": self._sink.host, "pause_s": round(pause_s, 1)}
            )
        if wrong:
            try:
                await self._address.renew()
            except (ApiFailure, StartRefused) as error:
                log.warning("the address cannot be asked for: %s", error)

    def _letter(self, entry: Entry, verdict: Verdict) -> dict[str, str]:
        return {
            **self._about,
            "runr-entry": entry.id,
            "runr-reason": verdict.reason,
            "runr-deliveries": str(entry.deliveries),
            "runr-at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }

    async def _leave_to_others(self) -> None:
        """What was not accounted for may be claimed at once, as from a consumer that has long been silent."""
        left, self._left = self._left, []
        with suppress(RedisError, OSError):
            await self._group.release(left, idle_ms=self._silent_ms)

    async def _have_room(self) -> None:
        while self._free() <= 0 and not self._closing.is_set():
            self._room.clear()
            await self._room.wait()

    def _free(self) -> int:
        """How many more entries may be taken. Those that pause need no slot, but are held."""
        return min(self._rules.in_flight - (len(self._held) - self._pausing), self._most_held - len(self._held))

    def _unless_draining(self) -> None:
        if self._closing.is_set():
            raise asyncio.CancelledError

    async def _unless_closing(self, waiting: Awaitable[None]) -> None:
        tasks = {asyncio.ensure_future(waiting), asyncio.ensure_future(self._closing.wait())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
