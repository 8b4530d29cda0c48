"""Members who add, change and remove each other at random, against a model: nobody gets more than they are given."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from runr.workflows.v1 import access_service_pb2 as pb

from services.core.domain.errors import Conflict, DomainError, NotFound, PermissionDenied
from services.core.runtime.sealing import Sealer
from services.core.store.database import Database
from tests.support.access_stage import Stage, access_stage
from tests.support.tenancy import database, sealer, tenant

__all__ = ["database", "sealer", "tenant"]

HEIGHT = {"viewer": 0, "developer": 1, "admin": 2, "owner": 3}
PEOPLE = 6
STEPS = 60


@dataclass
class Model:
    """Who is what, and what must become of a change."""

    roles: dict[str, str] = field(default_factory=dict)

    def add(self, actor: str, person: str, role: str) -> type[DomainError] | None:
        if not self._may(actor, HEIGHT[role]):
            return PermissionDenied
        if person in self.roles:
            return Conflict
        self.roles[person] = role
        return None

    def change(self, actor: str, person: str, role: str) -> type[DomainError] | None:
        if self.roles[actor] == "viewer":
            return PermissionDenied
        if person not in self.roles:
            return NotFound
        if not self._may(actor, max(HEIGHT[role], HEIGHT[self.roles[person]])):
            return PermissionDenied
        if role != self.roles[person] and self._is_last_owner(person):
            return Conflict
        self.roles[person] = role
        return None

    def remove(self, actor: str, person: str) -> type[DomainError] | None:
        if self.roles[actor] == "viewer":
            return PermissionDenied
        if person not in self.roles:
            return NotFound
        if not self._may(actor, HEIGHT[self.roles[person]]):
            return PermissionDenied
        if self._is_last_owner(person):
            return Conflict
        del self.roles[person]
        return None

    def _may(self, actor: str, height: int) -> bool:
        return self.roles[actor] != "viewer" and height <= HEIGHT[self.roles[actor]]

    def _is_last_owner(self, person: str) -> bool:
        return [each for each, role in self.roles.items() if role == "owner"] == [person]


@dataclass
class Town:
    """A tenant, its people, and what they hold: a token, the id of their membership."""

    stage: Stage
    number: int
    users: dict[str, str]
    model: Model = field(default_factory=Model)
    tokens: dict[str, str] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)

    async def settle(self, person: str, role: str) -> None:
        """Somebody is there from the beginning."""
        self.members[person] = await self.stage.join(self.number, self.users[person], role)
        self.model.roles[person] = role
        await self.equip(person)

    async def equip(self, person: str) -> None:
        """A token of a member, made when an owner, so that only what the member is now bounds it."""
        self.tokens[person] = await self.stage.token(self.number, self.users[person], "owner")

    def id_of(self, person: str) -> str:
        """The id of somebody's membership, also of one that is over; of nobody's, an id that is none."""
        return self.members.get(person, "0" * 26)

    async def ask(self, actor: str, request: Any) -> Any:
        """What a request comes to: its answer, or the class of its error."""
        try:
            return await self.stage.ask(request, token=self.tokens[actor])
        except DomainError as error:
            return type(error)

    async def listed(self) -> dict[str, str]:
        """Who is what, as the service tells it to an owner."""
        owner = next(person for person, role in self.model.roles.items() if role == "owner")
        answer = await self.stage.ask(pb.ListMembersRequest(page_size=200), token=self.tokens[owner])
        return {member.email: member.role for member in answer.members}


@pytest.fixture
async def stage(database: Database, sealer: Sealer, tenant: int) -> AsyncIterator[Stage]:
    async with access_stage(database, sealer) as made:
        yield made


async def town(stage: Stage, seed: int) -> Town:
    """A town whose first two people are an owner and a developer."""
    people = [f"p{number}-{seed}@example.com" for number in range(PEOPLE)]
    made = Town(stage, await stage.tenant(f"town-{seed}"), {email: await stage.user(email, None) for email in people})
    await made.settle(people[0], "owner")
    await made.settle(people[1], "developer")
    return made


async def step(place: Town, draw: random.Random) -> None:
    """One change, and that it came to what the model says."""
    actor = draw.choice(sorted(place.model.roles))
    person, role = draw.choice(sorted(place.users)), draw.choice(sorted(HEIGHT))
    match draw.choice(("add", "add", "change", "change", "remove")):
        case "add":
            expected = place.model.add(actor, person, role)
            came = await place.ask(actor, pb.AddMemberRequest(email=person, role=role))
            if expected is None:
                place.members[person] = came.member.id
                await place.equip(person)
        case "change":
            expected = place.model.change(actor, person, role)
            came = await place.ask(actor, pb.UpdateMemberRequest(member_id=place.id_of(person), role=role))
        case _:
            expected = place.model.remove(actor, person)
            came = await place.ask(actor, pb.RemoveMemberRequest(member_id=place.id_of(person)))
    assert (came if isinstance(came, type) else None) is expected, (actor, person, role, came)


@pytest.mark.parametrize("seed", range(3))
async def test_members_come_to_what_the_model_says(stage: Stage, seed: int) -> None:
    place, draw = await town(stage, seed), random.Random(seed)
    for _ in range(STEPS):
        await step(place, draw)
    assert await place.listed() == place.model.roles


async def test_owners_who_remove_each_other_at_once_leave_someone(stage: Stage) -> None:
    place = await town(stage, 99)
    owners = sorted(place.users)
    for person in owners[2:]:
        await place.settle(person, "owner")
    everybody = [owners[0], *owners[2:]]
    requests = [
        (actor, draw)
        for actor in everybody
        for person in everybody
        for draw in (
            pb.RemoveMemberRequest(member_id=place.members[person]),
            pb.UpdateMemberRequest(member_id=place.members[person], role="admin"),
        )
    ]
    random.Random(1).shuffle(requests)
    await asyncio.gather(*(place.ask(actor, request) for actor, request in requests))
    async with stage.database.connection() as connection:
        left = await connection.fetchval(
            "select count(*) from rt.membership where tenant = $1 and role = 'owner'", place.number
        )
    assert left >= 1
