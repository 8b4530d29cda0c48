-- Looks of `runr doctor`: each reads at most $1 rows of what it samples, the newest where there is an order, and finds the rest by
-- indexes that a tenant narrows. One statement is one snapshot, so what always holds holds in it.

-- name: facts
select current_setting('server_version_num')::int as version,
       current_setting('max_connections')::int as most_connections,
       (select count(*) from pg_stat_activity where datid is not null) as connections,
       current_setting('max_locks_per_transaction')::int as locks,
       (extract(epoch from clock_timestamp()) * 1000)::float8 as now_ms,
       current_database() as name,
       current_setting('fsync') as fsync,
       current_setting('full_page_writes') as full_page_writes,
       current_setting('synchronous_commit') as synchronous_commit;

-- name: long_transactions
-- They keep dead rows of hot tables alive.
select a.pid, coalesce(nullif(a.application_name, ''), 'a client without a name') as name, a.state,
       extract(epoch from clock_timestamp() - a.xact_start)::int as age_s
from pg_stat_activity a
where a.datname = current_database() and a.xact_start < clock_timestamp() - $1::int * interval '1 second' and a.pid <> pg_backend_pid()
order by a.xact_start limit 5;

-- name: applied_migrations
select name, digest from public.runr_migration;

-- name: living
-- Processes that count as alive, by what they are, and how long the most silent has not beaten.
select o.kind, count(*) as n, max(extract(epoch from rt.now() - o.beat_at))::int as silent_s
from rt.owner o where not o.dead and o.beat_at > rt.now() - interval '10 minutes' group by o.kind;

-- name: tenants
select count(*) from rt.tenant;

-- name: bloat
select s.relname as name, s.n_live_tup as live, s.n_dead_tup as dead
from pg_stat_user_tables s
where s.schemaname = 'rt' and s.relname in ('live', 'wait', 'mark') and s.n_dead_tup > $1 and s.n_dead_tup > 4 * s.n_live_tup
order by s.n_dead_tup desc;

-- name: longest_waiting
-- Ready runs that have waited longest, the oldest of each tenant.
select q.id, t.tenant, (select x.slug from rt.tenant x where x.id = t.tenant) as slug, q.waited_s
from rt.ready_tenants_v1() t(tenant) cross join lateral (
    select r.id, extract(epoch from rt.now() - (r.qk + r.prio * interval '1 second'))::int as waited_s
    from rt.live r where r.tenant = t.tenant and r.st = 'q' and not r.pooled order by r.qk limit 1) q
order by q.waited_s desc limit $1;

-- name: waiting_for_workers
-- Workflows that only workers serve, with ready runs: how long the oldest has waited.
with recursive t as (
    (select r.wf, r.tenant from rt.live r where r.st = 'q' and r.pooled order by r.wf limit 1)
    union all
    select n.wf, n.tenant from t cross join lateral (
        select r.wf, r.tenant from rt.live r where r.st = 'q' and r.pooled and r.wf > t.wf order by r.wf limit 1) n
)
select (select w.name from rt.workflows w where w.tenant = t.tenant and w.id = t.wf) as workflow, q.waited_s
from t cross join lateral (
    select extract(epoch from rt.now() - (r.qk + r.prio * interval '1 second'))::int as waited_s
    from rt.live r where r.wf = t.wf and r.st = 'q' and r.pooled order by r.qk limit 1) q
order by q.waited_s desc limit $1;

-- name: functions_away
-- Projects whose function did not answer in the last $2 s when it was asked last, as the newest runs tell: active ones that have
-- made no progress since, and failed ones, unless another run of the project has had an answer after that.
with r as materialized (
    (select l.tenant, l.id, l.fn_att > 0 as failing from rt.live l order by l.id desc limit $1)
    union all
    (select e.tenant, e.run, e.status = 'failed' from rt.ends e order by e.run desc limit $1)
), f as materialized (
    select r.tenant, x.project, a.t1, a.error
    from r cross join lateral (
        select a.t1, a.sid, a.error from rt.attempts a where a.tenant = r.tenant and a.run = r.id order by a.n desc limit 1) a
    cross join lateral (select x.project from rt.runs x where x.tenant = r.tenant and x.id = r.id offset 0) x
    where r.failing and a.sid is null and a.t1 > rt.now() - $2::int * interval '1 second'
      and a.error::json ->> 'name' = any ($3)
), p as materialized (
    select distinct on (f.tenant, f.project) f.tenant, f.project, f.t1, f.error, count(*) over (partition by f.tenant, f.project) as runs
    from f order by f.tenant, f.project, f.t1 desc
)
select (select t.slug from rt.tenant t where t.id = p.tenant) as tenant,
       (select x.slug from rt.projects x where x.tenant = p.tenant and x.id = p.project) as project,
       p.runs, p.error::json ->> 'name' as name, p.error::json ->> 'message' as message,
       extract(epoch from rt.now() - p.t1)::int as ago_s
from p
where not exists (
    select from r
    cross join lateral (select x.project from rt.runs x where x.tenant = r.tenant and x.id = r.id offset 0) x
    where r.tenant = p.tenant and x.project = p.project and (
        exists (select from rt.steps s where s.tenant = r.tenant and s.run = r.id
                and (s.t0 > p.t1 or s.kind = 'r' and s.t1 > p.t1))
        or exists (select from rt.wait w where w.run = r.id and w.kind in ('s', 'e', 'c', 'b') and w.created_at > p.t1)
        or exists (select from rt.ends e where e.tenant = r.tenant and e.run = r.id and e.status = 'completed' and e.ended > p.t1)))
order by p.t1 desc limit $4;

-- name: syncs_failed
-- Projects that could not be asked for their workflows when that was tried last.
select t.slug as tenant, p.slug as project, p.sync_status::json ->> 'message' as message
from rt.projects p join rt.tenant t on t.id = p.tenant
where p.endpoint_url is not null and p.sync_status::json ->> 'state' <> 'synced'
order by p.synced_at desc limit $1;

-- name: stalled
-- Of the newest active runs those that have been ready for $2 ms, or have failed and try again later; at most $3.
select l.id, l.tenant, l.st::text as status, (select w.name from rt.workflows w where w.tenant = l.tenant and w.id = l.wf) as workflow
from (select l.* from rt.live l order by l.id desc limit $1) l
where l.st = 'q' and l.qk + l.prio * interval '1 second' < rt.now() - $2::int * interval '1 millisecond'
    or l.st = 'd' and l.att > l.att_from
order by l.id desc limit $3;

-- name: held_by_the_dead
-- Runs whose owner is dead or unknown: a scheduler queues them within seconds.
select r.id, r.tenant from rt.live r
where r.owner = any (array(
    select distinct l.owner from (select x.owner from rt.live x where x.owner is not null limit $1) l
    where not exists (select from rt.owner o where o.id = l.owner and not o.dead)))
limit 20;

-- name: held_up
-- Runs that wait for a slot of a limit although there is one, for longer than a sweep of the gates takes.
select b.id, b.tenant from (
    select r.id, r.tenant, r.wf, r.ga, r.gb, r.gv from rt.live r where r.st = 'b' and r.qk < rt.now() - interval '60 seconds' limit $1) b
cross join lateral (select g.a, g.b, g.version from rt.gate_rule g where g.wf = b.wf offset 0) g
where b.gv = g.version
    and (select count(*) from (select from rt.live s where s.ga = b.ga and s.slot limit g.a) s) < g.a
    and (b.gb is null or (select count(*) from (select from rt.live s where s.gb = b.gb and s.slot limit g.b) s) < g.b)
limit 20;

-- name: not_looked_back
-- Waits that look back for events which came before them, and have not yet, for longer than that takes.
select w.run as id, w.tenant from rt.wait w
where w.arming and w.created_at < rt.now() - interval '2 minutes' and w.tenant = any (array(select t.id from rt.tenant t))
limit least($1, 20);

-- name: active_xor_ended
with r as materialized (select r.id, r.tenant from rt.runs r order by r.id desc limit $1)
select r.id, r.tenant from r
where exists (select from rt.live l where l.id = r.id) = exists (select from rt.ends e where e.tenant = r.tenant and e.run = r.id)
limit 20;

-- name: active_is_a_run
with l as materialized (select l.id, l.tenant from rt.live l order by l.id desc limit $1)
select l.id, l.tenant from l where not exists (select from rt.runs r where r.tenant = l.tenant and r.id = l.id) limit 20;

-- name: accepted_is_stored
select i.event as id, i.tenant from (select i.event, i.tenant from rt.event_ids i limit $1) i
where not exists (select from rt.events e where e.tenant = i.tenant and e.id = i.event) limit 20;

-- name: memoized_and_waiting
with w as materialized (select w.run, w.tenant, w.sid from rt.wait w where w.sid is not null limit $1)
select w.run as id, w.tenant from w
where exists (select from rt.steps s where s.tenant = w.tenant and s.run = w.run and s.sid = w.sid) limit 20;

-- name: places_of_steps
with l as materialized (select l.id, l.tenant, l.steps from rt.live l order by l.id desc limit $1)
select l.id, l.tenant from l cross join lateral (
    select s.seq from rt.steps s where s.tenant = l.tenant and s.run = l.id and s.status <> 'x'
    union all select w.seq from rt.wait w where w.run = l.id and w.kind in ('s', 'e', 'c')) s
group by l.id, l.tenant, l.steps
having count(*) <> count(distinct s.seq) or min(s.seq) < 0 or max(s.seq) >= l.steps limit 20;

-- name: something_wakes_it
with l as materialized (select l.id, l.tenant, l.st from rt.live l where l.st in ('s', 'w', 'd', 'p') order by l.id desc limit $1)
select l.id, l.tenant from l
where not exists (select from rt.wait w where w.run = l.id and w.kind <> 'x' and (l.st not in ('s', 'd') or w.due_at is not null))
    and not (l.st in ('w', 'p') and exists (select from rt.mark m where m.target = l.id))
limit 20;

-- name: has_its_child
with w as materialized (select w.run, w.tenant, w.child from rt.wait w where w.child is not null limit $1)
select w.run as id, w.tenant from w
where not exists (select from rt.live l where l.id = w.child)
    and not exists (select from rt.mark m where m.target = w.run and m.kind = 'child_end' and m.body = w.child::text) limit 20;

-- name: within_its_limit
with l as materialized (select l.wf, l.gv, l.ga, l.gb, l.tenant from rt.live l where l.slot limit $1)
select x.gate as id, min(l.tenant) as tenant from l
join rt.gate_rule g on g.wf = l.wf and g.version = l.gv
cross join lateral (values (l.ga, g.a), (l.gb, g.b)) x(gate, most)
where x.gate is not null group by x.gate, x.most having count(*) > x.most limit 20;

-- name: leased_with_its_slot
select l.id, l.tenant from (select l.* from rt.live l where l.st = 'r' limit $1) l where l.ga is not null and not l.slot limit 20;

-- name: a_tick_once
with r as materialized (select r.id, r.tenant, r.wf, r.source, r.event_data from rt.runs r order by r.id desc limit $1)
select max(r.id::text)::uuid as id, r.tenant from r where r.source = 'cron'
group by r.tenant, r.wf, r.event_data having count(*) > 1 limit 20;

-- name: not_early
with r as materialized (select r.id, r.tenant from rt.runs r order by r.id desc limit $1)
select s.run as id, s.tenant from r join rt.steps s on s.tenant = r.tenant and s.run = r.id
where s.kind in ('s', 'e') and s.status = 'c' and s.event is null
    and extract(epoch from s.t1 - s.t0) * 1000 < coalesce(s.input::json ->> 'duration_ms', s.input::json ->> 'timeout_ms')::bigint
limit 20;

-- name: one_of_event_and_timeout
with r as materialized (select r.id, r.tenant from rt.runs r order by r.id desc limit $1)
select s.run as id, s.tenant from r join rt.steps s on s.tenant = r.tenant and s.run = r.id
where s.event is not null and (s.kind <> 'e' or s.status <> 'c' or s.output is null)
    or s.kind = 'e' and s.status = 'c' and (s.output is null) <> (s.event is null)
limit 20;

-- name: ended_has_nothing
with e as materialized (select e.run, e.tenant from rt.ends e order by e.run desc limit $1)
select e.run as id, e.tenant from e
where exists (select from rt.live l where l.id = e.run) or exists (select from rt.wait w where w.run = e.run) limit 20;

-- name: a_wait_has_its_run
with w as materialized (select w.run, w.tenant from rt.wait w limit $1)
select w.run as id, w.tenant from w where not exists (select from rt.live l where l.id = w.run and l.tenant = w.tenant) limit 20;

-- name: of_one_tenant
with r as materialized (select r.id, r.tenant, r.wf, r.parent from rt.runs r order by r.id desc limit $1)
select r.id, r.tenant from r
where exists (select from rt.live l where l.id = r.id and l.tenant <> r.tenant)
    or not exists (select from rt.workflows w where w.tenant = r.tenant and w.id = r.wf)
    or exists (select from rt.ends e where e.run = r.id and e.tenant <> r.tenant)
limit 20;

-- name: one_trace
-- A traceparent is the last 55 characters of what is kept.
with r as materialized (select r.id, r.tenant, r.parent, r.trace from rt.runs r order by r.id desc limit $1)
select r.id, r.tenant from r
cross join lateral (select p.trace from rt.runs p where p.tenant = r.tenant and p.id = r.parent offset 0) p
where split_part(right(r.trace, 55), '-', 2) <> split_part(right(p.trace, 55), '-', 2) limit 20;
