"""`runr doctor` on a database: a healthy engine is healthy, and whatever is broken is found and named."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import asyncpg
import pytest

from services.cli.doctor import command
from services.cli.doctor.database_checks import company, opened, schema, server
from services.cli.doctor.finding import Finding, State
from services.cli.doctor.functions import functions
from services.cli.doctor.invariants import RULES, SAMPLE, Rule, invariants
from services.cli.doctor.service_checks import counted, hints
from services.cli.doctor.waiting import waiting
from services.cli.failure import Failure
from services.core.runtime.exposition import Exposition
from services.core.runtime.health import Health
from services.core.runtime.health_server import HealthServer
from services.core.runtime.ids import ulid_text
from services.core.runtime.metric_table import DUTY_WORK, HINTS_DROPPED, OWNERS_LOST
from services.core.runtime.metrics import Metrics
from services.core.runtime.parse import Address
from services.core.runtime.service import EXIT_FAILED, EXIT_OK, EXIT_USAGE
from services.core.store.queries import queries
from tests.support.live_rows import DAY_MS, LiveRows

HOUR_MS = 3_600_000

BREAKS: Mapping[str, str] = {
    "active_xor_ended": "delete from rt.live where id = $1",
    "active_is_a_run": "delete from rt.runs where id = $1",
    "accepted_is_stored": "insert into rt.event_ids (tenant, src, eid, event, accept_id)"
    " select tenant, 'u', 'lost', id, id from rt.live where id = $1",
    "memoized_and_waiting": "insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, t0, t1)"
    " select tenant, run, sid, 0, 's', 's', 'c', 'null', rt.now(), rt.now() from rt.wait where run = $1",
    "places_of_steps": "update rt.live set steps = 0 where id = $1",
    "something_wakes_it": "delete from rt.wait where run = $1",
    "has_its_child": "insert into rt.wait (id, run, tenant, kind, sid, child)"
    " select gen_random_uuid(), id, tenant, 'c', 'child', gen_random_uuid() from rt.live where id = $1",
    "within_its_limit": "with r as (insert into rt.gate_rule (wf, tenant, keys, a) select wf, tenant, 7, 0 from rt.live"
    " where id = $1 returning wf, version)"
    " update rt.live l set ga = 9, gv = r.version, slot = true from r where l.id = $1",
    "leased_with_its_slot": "update rt.live set ga = 9, gv = 1, st = 'r', owner = 1 where id = $1",
    "a_tick_once": "with r as (update rt.runs set source = 'cron', event_data = 't' where id = $1 returning *)"
    " insert into rt.runs (tenant, id, wf, project, created_at, source, event, event_name, event_ts, event_data)"
    " select tenant, gen_random_uuid(), wf, project, created_at, source, event, event_name, event_ts, event_data"
    " from r",
    "not_early": "insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, input, t0, t1)"
    " select tenant, id, 'nap', 1, 'nap', 's', 'c', 'null', '{\"duration_ms\":60000}', rt.now(), rt.now()"
    " from rt.live where id = $1",
    "one_of_event_and_timeout": "insert into rt.steps"
    " (tenant, run, sid, seq, name, kind, status, output, event, t0, t1)"
    " select tenant, id, 'e', 1, 'e', 'e', 'c', null, gen_random_uuid(), rt.now(), rt.now() from rt.live where id = $1",
    "ended_has_nothing": "insert into rt.ends (tenant, run, status, ended, epoch, rev, steps, bytes, att)"
    " select tenant, id, 'completed', rt.now(), 0, 0, 0, 0, 0 from rt.live where id = $1",
    "a_wait_has_its_run": "update rt.wait set run = gen_random_uuid() where run = $1",
    "of_one_tenant": "update rt.live set tenant = tenant + 1 where id = $1",
    "one_trace": "update rt.runs set parent = (select id from rt.runs where id <> $1 limit 1),"
    " trace = '00-' || repeat('a', 32) || '-' || repeat('b', 16) || '-01' where id = $1",
}


@pytest.fixture
async def connection(rows: LiveRows) -> AsyncIterator[asyncpg.Connection]:
    found, finding = await opened(rows.database.dsn)
    assert finding == Finding("postgres answers")
    assert found is not None
    yield found
    await found.close()


async def told(findings: AsyncIterator[Finding]) -> dict[str, Finding]:
    return {finding.subject: finding async for finding in findings}


async def asleep(rows: LiveRows) -> uuid.UUID:
    """A run like all those that an engine has: it sleeps, beside another one."""
    await rows.rows(
        "insert into rt.workflows (tenant, id, project, name, definition) values ($1, 1, 1, 'w', '{}')"
        " on conflict do nothing returning id",
        rows.tenant,
    )
    trace = f"00-{'c' * 32}-{'d' * 16}-01"
    _, run = [await rows.asleep(DAY_MS, trace=trace) for _ in range(2)]
    await rows.rows("update rt.live set steps = 2 returning id")
    return run


async def test_a_healthy_database_is_healthy(rows: LiveRows, connection: asyncpg.Connection) -> None:
    await asleep(rows)
    for kind in ("executor", "scheduler"):
        await rows.owner(kind=kind)
    for look in (server, schema, company, waiting, functions, invariants):
        findings = [finding async for finding in look(connection)]
        assert findings
        # Of tests beside this one.
        well = [each for each in findings if each.subject not in ("postgres connections", "no long transactions")]
        assert [each for each in well if each.state is not State.OK] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.query)
async def test_each_broken_invariant_is_found(rule: Rule, rows: LiveRows, connection: asyncpg.Connection) -> None:
    run = await asleep(rows)
    assert await connection.fetch(queries("doctor")[rule.query], SAMPLE) == []
    async with rows.database.connection() as changing:
        await changing.execute(BREAKS[rule.query], run)
    finding = (await told(invariants(connection)))[f"invariant {rule.invariant}: {rule.text}"]
    assert finding.state is State.FAIL
    assert "report it" in finding.advice


async def test_runs_that_wait_are_named(rows: LiveRows, connection: asyncpg.Connection) -> None:
    (run, pooled) = await rows.start(2)
    await rows.rows("update rt.live set qk = rt.now() - interval '1 hour' where id = $1 returning id", run)
    await rows.rows(
        "update rt.live set qk = rt.now() - interval '1 hour', pooled = true where id = $1 returning id", pooled
    )
    await rows.asleep(-HOUR_MS)
    found = await told(waiting(connection))
    assert ulid_text(run) in found["ready runs are taken"].reason
    assert "360" in found["workers take their runs"].reason
    assert found["timers are fired"].state is State.FAIL
    assert all(each.advice for each in found.values() if each.reason)


async def test_runs_that_are_stuck_are_named(rows: LiveRows, connection: asyncpg.Connection) -> None:
    held = await rows.held(await rows.owner(dead=True))
    (blocked,) = await rows.start(1, wf=5, ga=5)
    await rows.rows("update rt.gate_rule set a = 1 where wf = 5 returning wf")
    await rows.rows(
        "update rt.live set st = 'b', slot = false, qk = rt.now() - interval '1 hour' where id = $1 returning id",
        blocked,
    )
    found = await told(waiting(connection))
    assert ulid_text(held) in found["runs are held by the living"].reason
    assert ulid_text(blocked) in found["free slots of limits are given away"].reason


REFUSED = '{"name":"FunctionUnreachable","message":"connection refused"}'


async def unanswered(rows: LiveRows, *, ago: str, error: str = REFUSED, ends: bool = False) -> uuid.UUID:
    """A run of the default project whose function did not answer."""
    owner = await rows.owner()
    run = await rows.held(owner)
    await rows.rows(
        "insert into rt.attempts (tenant, run, n, sid, k, error, t0, t1)"
        " values ($1, $2, 0, null, 1, $3, rt.now() - $4::text::interval, rt.now() - $4::text::interval) returning n",
        *(rows.tenant, run, error, ago),
    )
    await rows.rows("update rt.live set fn_att = 1, att = 1 where id = $1 returning id", run)
    if ends:
        await rows.end(owner, run, "failed", error=error)
    return run


@pytest.mark.parametrize("ends", [False, True], ids=["goes-on", "has-failed"])
async def test_a_function_that_does_not_answer_is_named(
    ends: bool, rows: LiveRows, connection: asyncpg.Connection
) -> None:
    run = await unanswered(rows, ago="5 s", ends=ends)
    found = (await told(functions(connection)))["functions answer"]
    assert found.state is State.WATCH
    assert "project default of tenant default did not answer 1 run, the last " in found.reason
    assert found.reason.endswith(" s ago: FunctionUnreachable: connection refused")
    assert "function-errors.md" in found.advice
    # Then it answers another run.
    other = await rows.held(await rows.owner())
    assert other != run
    await rows.rows(
        "insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, t0, t1)"
        " values ($1, $2, 'a', 0, 'a', 'r', 'c', 'null', rt.now(), rt.now()) returning sid",
        *(rows.tenant, other),
    )
    assert (await told(functions(connection)))["functions answer"].state is State.OK


async def test_what_is_long_ago_or_of_the_code_itself_is_no_function_away(
    rows: LiveRows, connection: asyncpg.Connection
) -> None:
    await unanswered(rows, ago="1 hour")
    await unanswered(rows, ago="5 s", error='{"name":"ValueError","message":"no"}')
    assert (await told(functions(connection)))["functions answer"].state is State.OK


async def test_a_sync_that_failed_is_named(rows: LiveRows, connection: asyncpg.Connection) -> None:
    status = '{"state":"failed","message":"FunctionTimeout: no answer"}'
    statement = "update rt.projects set endpoint_url = $1, sync_status = $2 where slug = 'default' returning id"
    try:
        await rows.rows(statement, "http://away", status)
        found = (await told(functions(connection)))["functions tell their workflows"]
    finally:
        await rows.rows(statement, None, None)
    assert (found.state, found.reason) == (
        State.WATCH,
        "project default of tenant default: FunctionTimeout: no answer",
    )


async def test_missing_company_and_migrations_are_found(rows: LiveRows, connection: asyncpg.Connection) -> None:
    found = await told(company(connection))
    assert found["an executor lives"].state is State.FAIL
    assert "runr serve scheduler" in found["a scheduler lives"].advice
    (well,) = [finding async for finding in schema(connection)]
    assert well == Finding("migrations")
    await rows.rows("update public.runr_migration set digest = 'x' where name like '0001%' returning name")
    (other,) = [finding async for finding in schema(connection)]
    assert "another form: 0001_pre_engine" in other.reason
    await rows.rows("delete from public.runr_migration where name like '0001%' returning name")
    (missing,) = [finding async for finding in schema(connection)]
    assert (missing.state, missing.advice) == (State.FAIL, "run `runr migrate` of this version")


async def test_it_changes_nothing(connection: asyncpg.Connection) -> None:
    with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
        await connection.execute("delete from rt.live")


async def test_a_transaction_that_stands_is_named(rows: LiveRows, connection: asyncpg.Connection) -> None:
    other = await asyncpg.connect(rows.database.dsn, server_settings={"application_name": "somebody"})
    try:
        async with other.transaction():
            await other.fetchval("select 1")
            found = await connection.fetch(queries("doctor")["long_transactions"], -1)
            assert "somebody" in {row["name"] for row in found}
    finally:
        await other.close()


def metrics_of(*, dropped: int = 0, hinted: int = 0, lost: int = 0) -> Exposition:
    counted = Metrics("scheduler")
    counted.watch(HINTS_DROPPED, lambda: dropped)
    counted.counter(DUTY_WORK, "rehint", "hinted").add(hinted)
    counted.counter(DUTY_WORK, "rescue", "rescued").add(99)
    counted.watch(OWNERS_LOST, lambda: lost)
    return Exposition([counted])


async def test_hints_that_are_lost_while_it_looks_are_told() -> None:
    looks = [metrics_of(dropped=5, hinted=7), metrics_of(dropped=5, hinted=7), metrics_of(dropped=8, hinted=8, lost=2)]
    health = Health()
    server = HealthServer(health, Address("127.0.0.1", 0), "scheduler", metrics=lambda: looks.pop(0).text())
    await server.start()
    try:
        asked = {"scheduler": f"http://{server.address}/readyz"}
        first, second, third = [await counted(asked) for _ in range(3)]
    finally:
        await server.stop()
    assert first == {"not sent": 5, "sent again": 7, "lives lost": 0}
    assert [finding.state for finding in hints(first, second)] == [State.OK, State.OK]
    arrive, alive = hints(second, third)
    assert arrive.reason == "3 were not sent, 1 were sent again while this looked"
    assert "2 times" in alive.reason


async def run_doctor(capsys: pytest.CaptureFixture[str], environ: Mapping[str, str], home: Path) -> tuple[int, str]:
    code = await command.run({**environ, "RUNR_HOME": str(home)}, health=["none"])
    return code, capsys.readouterr().out


async def test_its_exit_code_says_whether_something_fails(
    rows: LiveRows, nats_url: str, nats_prefix: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    environ = {"DATABASE_URL": rows.database.dsn, "NATS_URL": nats_url, "RUNR_NATS_PREFIX": nats_prefix}
    code, said = await run_doctor(capsys, environ, tmp_path)
    assert code == EXIT_FAILED
    assert "FAIL  an executor lives: none" in said
    assert "      → start one: `runr serve executor`\n" in said
    for kind in ("executor", "scheduler"):
        await rows.owner(kind=kind)
    code, said = await run_doctor(capsys, environ, tmp_path)
    assert code == EXIT_OK, said
    assert "ok    invariant 7: an ended run has no lease, wait or slot\n" in said
    assert f"watch stream {nats_prefix.upper()}_READY: " in said  # nobody has made it


async def test_programs_read_its_findings_as_json(
    rows: LiveRows, nats_url: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    environ = {"DATABASE_URL": rows.database.dsn, "NATS_URL": nats_url, "RUNR_HOME": str(tmp_path)}
    assert await command.run(environ, health=["none"], as_json=True) == EXIT_FAILED
    told = json.loads(capsys.readouterr().out)
    assert told["ok"] is False
    assert {frozenset(finding) for finding in told["findings"]} == {frozenset(("subject", "reason", "advice", "state"))}
    assert {finding["state"] for finding in told["findings"]} <= {"ok", "watch", "fail"}


@pytest.mark.parametrize("given", ["executor", "executor=", "executor=somewhere", "executor=h:99999"])
async def test_an_address_that_is_none_is_refused(given: str, tmp_path: Path) -> None:
    environ = {"DATABASE_URL": "postgresql://h/d", "NATS_URL": "nats://h", "RUNR_HOME": str(tmp_path)}
    with pytest.raises(Failure, match="NAME=HOST:PORT, or none") as refused:
        await command.run(environ, health=[given])
    assert refused.value.code == EXIT_USAGE
