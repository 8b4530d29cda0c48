"""Another encryption key for a database that is filled: old and new side by side, then the new one alone."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from services.cli.main import main
from services.core.engine.bootstrap import ensure_bootstrap
from services.core.engine.projects import ProjectChange, create_project
from services.core.engine.signing_keys import new_key, open_keys, require_encryption_key
from services.core.runtime.config import ConfigError, load
from services.core.runtime.sealing import SealBroken, Sealer
from services.core.runtime.settings import EncryptionSettings
from services.core.store.access import create_tenant
from services.core.store.database import Database
from services.core.store.projects import get_project, set_key

OLD, NEW, OTHER = b"o" * 32, b"n" * 32, b"x" * 32
T = TypeVar("T")


def over(url: str, work: Callable[[Database], Awaitable[T]]) -> T:
    """Some work over a pool of its own."""

    async def done() -> T:
        database = Database(url, name="test", size=2)
        await database.open()
        try:
            return await work(database)
        finally:
            await database.close()

    return asyncio.run(done())


async def fill(database: Database) -> None:
    """Two tenants; of three projects with keys one was rotated, and one serves no workflows."""
    sealer = Sealer(OLD)
    tenant = await ensure_bootstrap(database, sealer, None)
    async with database.transaction() as connection:
        other = await create_tenant(connection, "acme", "")
        for slug, kind in (("orders", "workflow"), ("page", "http")):
            await create_project(connection, sealer, other, slug, ProjectChange(trigger_type=kind))
        project = await get_project(connection, tenant, "default")
        made = new_key(sealer, tenant, project.id)
        await set_key(connection, tenant, project.id, made.sealed, made.fingerprint, rotate=True)


async def keys(database: Database, sealer: Sealer) -> list[object]:
    """All keys in the clear, as a sealer opens them."""
    found: list[object] = []
    async with database.connection() as connection:
        for tenant, slug in ((1, "default"), (2, "orders"), (2, "page")):
            opened = open_keys(sealer, await get_project(connection, tenant, slug), 86_400_000)
            found.append(None if opened is None else (opened.current, opened.previous))
    return found


async def starts(database: Database, sealer: Sealer) -> None:
    """What every service that opens keys asks for at its start."""
    async with database.connection() as connection:
        await require_encryption_key(connection, sealer)


@pytest.fixture
def reseal(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Says `runr admin reseal` with a key and former ones."""
    monkeypatch.setenv("DATABASE_URL", postgres_url)
    monkeypatch.setenv("RUNR_HOME", str(tmp_path))

    def say(key: bytes | None, *former: bytes, words: tuple[str, ...] = ()) -> tuple[int, str, str]:
        monkeypatch.setenv("RUNR_ENCRYPTION_KEY", "" if key is None else base64.b64encode(key).decode())
        monkeypatch.setenv("RUNR_FORMER_ENCRYPTION_KEYS", ", ".join(each.hex() for each in former))
        code = main(["admin", "reseal", *words])
        said = capsys.readouterr()
        return code, said.out, said.err

    return say


def test_keys_are_opened_by_a_former_key_until_they_are_sealed_anew(
    postgres_url: str, reseal: Callable[..., tuple[int, str, str]]
) -> None:
    over(postgres_url, fill)
    before = over(postgres_url, lambda database: keys(database, Sealer(OLD)))
    assert [each is None for each in before] == [False, False, True]
    with pytest.raises(SealBroken, match="RUNR_ENCRYPTION_KEY"):
        over(postgres_url, lambda database: starts(database, Sealer(NEW)))
    both = Sealer(NEW, retired=[OLD])
    over(postgres_url, lambda database: starts(database, both))
    assert over(postgres_url, lambda database: keys(database, both)) == before

    code, out, _ = reseal(NEW, OLD, words=("--json",))
    assert (code, json.loads(out)) == (0, {"resealed": 2, "projects": 2})
    over(postgres_url, lambda database: starts(database, Sealer(NEW)))
    assert over(postgres_url, lambda database: keys(database, Sealer(NEW))) == before
    with pytest.raises(SealBroken):
        over(postgres_url, lambda database: starts(database, Sealer(OLD)))

    assert reseal(NEW)[:2] == (0, "0 of 2 projects had keys of another encryption key, and no longer do\n")

    async def log(database: Database) -> list[str]:
        async with database.connection() as connection:
            rows = await connection.fetch("select action || ' ' || subject as line from rt.audit where tenant = 0")
        return [row["line"] for row in rows]

    assert over(postgres_url, log) == ["encryption_key.change 2 projects"]


def test_without_the_former_key_nothing_is_changed(
    postgres_url: str, reseal: Callable[..., tuple[int, str, str]]
) -> None:
    over(postgres_url, fill)
    before = over(postgres_url, lambda database: keys(database, Sealer(OLD)))
    code, _, err = reseal(NEW, OTHER)
    assert code == 1
    assert "signing_key/1/1" in err
    assert "RUNR_FORMER_ENCRYPTION_KEYS" in err
    assert over(postgres_url, lambda database: keys(database, Sealer(OLD))) == before
    assert reseal(None)[0] == 2


def test_former_keys_are_read_from_a_list() -> None:
    environ = {"RUNR_ENCRYPTION_KEY": NEW.hex(), "RUNR_FORMER_ENCRYPTION_KEYS": f"{OLD.hex()}, {OTHER.hex()}"}
    settings = load(EncryptionSettings, environ)
    assert settings.former == (OLD, OTHER)
    assert OLD.hex() not in repr(settings)
    with pytest.raises(ConfigError, match="RUNR_FORMER_ENCRYPTION_KEYS must be keys of 32 bytes") as refused:
        load(EncryptionSettings, environ | {"RUNR_FORMER_ENCRYPTION_KEYS": f"{OLD.hex()},short"})
    assert OLD.hex() not in str(refused.value)
