-- Reads of runs. Every statement names the tenant: with it the primary keys (tenant, …) can be used, and the engine's own
-- tables, which hold all tenants, give only what is this tenant's.

-- name: runs
-- What a list shows of these runs. An active run is in rt.live, an ended one in ends, never in both.
select r.id, r.source, r.event, r.event_name, r.event_ts, r.idem, r.test, r.parent, r.replay_of, r.tags, r.trace,
       w.name as workflow, p.slug as project, coalesce(l.st::text, e.status) as status,
       coalesce(k.k, l.fn_att, 0)::int as attempt, rt.ms(r.created_at) as created_ms,
       rt.ms(coalesce(l.started, e.started)) as started_ms, rt.ms(e.ended) as ended_ms, rt.ms(d.due_at) as due_ms,
       rt.ms(l.deadline) as timeout_ms, e.error
from {t}.runs r
join {t}.workflows w on w.tenant = $1 and w.id = r.wf
join {t}.projects p on p.tenant = $1 and p.id = r.project
left join rt.live l on l.id = r.id and l.tenant = $1
left join {t}.ends e on e.tenant = $1 and e.run = r.id
left join lateral (
    select min(t.due_at) as due_at from rt.wait t where t.run = l.id and t.tenant = $1 and t.kind in ('s', 'b', 'd')
) d on l.st in ('s', 'd')
left join lateral (                                -- the step that failed and has no result yet: it runs next
    select a.k from {t}.attempts a
    where a.tenant = $1 and a.run = l.id and a.n >= l.att_from and a.sid is not null
      and not exists (select from {t}.steps s where s.tenant = $1 and s.run = a.run and s.sid = a.sid)
    order by a.n desc limit 1
) k on l.att > l.att_from
where r.tenant = $1 and r.id = any ($2)
order by r.id desc;

-- name: waiting
-- Of those of the runs ($2) that are ready, wait for a time or are executed, what is known of why they do not go on. Workers show
-- by what they execute. The first bound lets the index on owners be used.
with executing as materialized (
    select distinct x.wf from rt.live x
    where x.owner >= '-9223372036854775808'::bigint and x.affinity is not null and x.tenant = $1
)
select l.id, l.st::text as st, l.pooled, rt.ms(d.due_at) as due_ms, a.k::int as attempt, a.error,
       rt.ms(h.heard_at) as heard_ms, rt.ms(rt.now()) as now_ms, l.affinity is not null as streamed,
       coalesce(rt.ms(rt.now()) - rt.ms(l.qk + l.prio * interval '1 second'), 0) as ready_ms,
       case when l.st = 'b' then w.definition::json ->> 'concurrency' end as concurrency,
       exists (
           select from rt.owner o where o.kind = 'executor' and not o.dead and o.beat_at > rt.now() - interval '30 seconds'
       ) as executors,
       case when l.st <> 'q' or not l.pooled then 'none'
            when exists (select from executing x where x.wf = l.wf) then 'busy'
            when exists (select from executing x join {t}.workflows o on o.id = x.wf where o.project = w.project) then 'others'
            else 'none' end as workers
from rt.live l
join {t}.workflows w on w.tenant = $1 and w.id = l.wf
left join lateral (
    select min(t.due_at) as due_at from rt.wait t where t.run = l.id and t.tenant = $1 and t.kind in ('s', 'b', 'd')
) d on l.st = 'd'
left join lateral (
    select x.k, x.error from {t}.attempts x where x.tenant = $1 and x.run = l.id and x.n >= l.att_from order by x.n desc limit 1
) a on l.st = 'd'
left join lateral (
    select max(x.at) as heard_at from (
        select l.taken as at
        union all select s.t1 from {t}.steps s where s.tenant = $1 and s.run = l.id
        union all select f.t1 from {t}.attempts f where f.tenant = $1 and f.run = l.id
    ) x
) h on l.st = 'r'
where l.tenant = $1 and l.id = any ($2) and l.st in ('q', 'b', 'd', 'p', 'r');

-- name: payload
select coalesce(r.event_data, v.data) as event_data, e.output
from {t}.runs r
left join {t}.events v on v.tenant = $1 and v.id = r.event and r.event_data is null
left join {t}.ends e on e.tenant = $1 and e.run = r.id
where r.tenant = $1 and r.id = $2;

-- name: result
select coalesce(l.st::text, e.status) as status, e.output, e.error, rt.ms(e.ended) as ended_ms
from {t}.runs r
left join rt.live l on l.id = r.id and l.tenant = $1
left join {t}.ends e on e.tenant = $1 and e.run = r.id
where r.tenant = $1 and r.id = $2;

-- name: ended_among
-- For all waiting callers of a process at once, whatever their tenants: it tells only of ids that were asked for.
select u.id from unnest($1::uuid[]) u(id) where not exists (select from rt.live l where l.id = u.id);

-- name: step_places
-- A page of the steps of a run: stored ones, open ones, and those that failed and will run again, whose place is not known
-- yet. `remaining` counts this page and all behind it. A page ends early once it holds $6 bytes, but has at least one step.
with p as (
    select s.sid, s.seq,
           coalesce(octet_length(s.output), 0) + coalesce(octet_length(s.error), 0) + coalesce(octet_length(s.input), 0) as size
    from {t}.steps s where s.tenant = $1 and s.run = $2
    union all
    select t.sid, t.seq, coalesce(octet_length(t.fields), 0)
    from rt.wait t where t.run = $2 and t.tenant = $1 and t.kind in ('s', 'e', 'c', 'b')
    union all
    select a.sid, null, octet_length(a.error)
    from {t}.attempts a where a.tenant = $1 and a.run = $2 and a.sid is not null
), k as (
    select p.sid collate "C" as sid, coalesce(max(p.seq), 2147483647) as seq, sum(p.size) as size from p group by p.sid collate "C"
), n as (
    select k.seq, k.sid, row_number() over o as n, sum(k.size) over o as total, count(*) over () as remaining
    from k where (k.seq, k.sid) > ($3, $4 collate "C")
    window o as (order by k.seq, k.sid rows unbounded preceding)
)
select seq, sid, remaining from n where n = 1 or (n <= $5 and total <= $6) order by n;

-- name: stored_steps
select s.sid, s.name, s.kind::text as kind, s.status::text as status, s.output, s.error, s.input, s.child, s.att,
       rt.ms(s.t0) as started_ms, rt.ms(s.t1) as ended_ms
from {t}.steps s where s.tenant = $1 and s.run = $2 and s.sid = any ($3);

-- name: open_steps
select t.sid, t.name, t.kind::text as kind, t.fields, t.event, t.child, rt.ms(t.due_at) as due_ms, rt.ms(t.created_at) as created_ms
from rt.wait t where t.run = $2 and t.tenant = $1 and t.sid = any ($3) and t.kind in ('s', 'e', 'c', 'b');

-- name: step_attempts
select a.sid, a.k, a.error, a.note, rt.ms(a.t0) as started_ms, rt.ms(a.t1) as ended_ms
from {t}.attempts a where a.tenant = $1 and a.run = $2 and a.sid = any ($3) order by a.n;

-- name: function_attempts
-- Of one that was lost with its process nobody has told where it was: it had begun by the result before it, under the same
-- lease, and was in the step that was executed next, if that is what came next.
select a.k, a.error, a.note, rt.ms(greatest(a.t0, b.t1)) as started_ms, rt.ms(a.t1) as ended_ms, c.sid
from (
    select * from {t}.attempts a where a.tenant = $1 and a.run = $2 and a.sid is null order by a.n desc limit $3
) a
left join lateral (
    select max(x.t1) as t1 from (
        select s.t1 from {t}.steps s where s.tenant = $1 and s.run = $2 and s.t1 <= a.t1
        union all
        select f.t1 from {t}.attempts f where f.tenant = $1 and f.run = $2 and f.n < a.n
    ) x
) b on starts_with(a.error, '{"name":"WorkerLost"')
left join lateral (
    select case when x.kind = 'r' then x.sid end as sid from (
        select s.kind, s.sid, s.t0 from {t}.steps s where s.tenant = $1 and s.run = $2 and s.t0 >= a.t1
        union all
        select 'r', f.sid, f.t0 from {t}.attempts f where f.tenant = $1 and f.run = $2 and f.n > a.n and f.sid is not null
    ) x order by x.t0 limit 1
) c on starts_with(a.error, '{"name":"WorkerLost"')
order by a.n desc;

-- name: children
select c.sid, r.id, w.name as workflow, coalesce(l.st::text, e.status) as status
from (
    select s.seq, s.sid, s.child from {t}.steps s where s.tenant = $1 and s.run = $2 and s.child is not null
    union all
    select t.seq, t.sid, t.child from rt.wait t where t.run = $2 and t.tenant = $1 and t.kind = 'c'
) c
join {t}.runs r on r.tenant = $1 and r.id = c.child
join {t}.workflows w on w.tenant = $1 and w.id = r.wf
left join rt.live l on l.id = r.id and l.tenant = $1
left join {t}.ends e on e.tenant = $1 and e.run = r.id
order by c.seq, c.sid;
