-- name: register_owner
insert into rt.owner (id, kind, node, process) values ($1, $2, $3, $4);

-- name: try_owner_lock
select pg_try_advisory_lock($1);

-- name: beat
select rt.beat_v1($1);

-- name: remove_owner
delete from rt.owner where id = $1;

-- name: held_runs
select id, epoch from rt.live where owner = $1;

-- name: leases
select id, epoch from rt.live where owner = $1 and id = any ($2);

-- name: let_go
select * from rt.let_go_v1($1, $2, $3, $4);

-- name: settle_pool
-- Given back, with who may claim them settled by their projects ($4) as these are now.
select * from rt.let_go_v1($1, $2, $3, true, $4);

-- name: leave
select * from rt.leave_v1($1, $2);

-- name: leave_some
select * from rt.leave_v1(p_owner => $1, p_run => $2, p_epoch => $3);

-- name: parked
select * from rt.parked_v1($1, $2, $3);

-- name: never_begun
select * from rt.never_begun_v1($1, $2, $3, $4);

-- name: is_alive
select exists (select from rt.owner where id = $1 and not dead);

-- name: take_over
select * from rt.take_over_v1($1, $2, $3, $4, $5, $6);

-- name: taken_over
select * from rt.live where id = any ($2) and owner = $1;

-- name: assign
select * from rt.assign_v1($1, $2, $3, $4);

-- name: claim_hinted
select * from rt.claim_hinted_v1($1, $2, $3);

-- name: claim_and_load
-- The same, and what is stored of those of a tenant ($4), as `load` tells it. All this is seen as it was when the statement began,
-- before the runs were claimed: told only where nothing of the run has moved in between, and where memory and event have no more
-- than $5 bytes each: the claims are not committed before their reader has taken all of this. `version` is null for the others.
with c as materialized (select * from rt.claim_hinted_v1($1, $2, $3))
select c.*, l.*
from c left join lateral (
    select r.source, r.event, r.event_name, r.event_ts, coalesce(r.event_data, e.data) as event_data, r.test, r.trace,
           floor(extract(epoch from rt.now()) * 1000)::bigint as reached_ms,
           (select d.v from rt.defs_version d where d.tenant = $4) as version,
           s.sids, s.completed, s.results, s.unnamed, o.sids as open_sids, o.kinds as open_kinds, a.sids as failing_sids, a.failures
    from (select b.* from rt.live b
          where b.id = c.id and b.tenant = $4 and c.owner is not null
            and b.mail = c.mail and b.rev = c.rev and b.epoch = c.epoch - 1 and b.bytes <= $5 offset 0) b
    cross join lateral (
        select r.* from {t}.runs r where r.id = b.id and coalesce(octet_length(r.event_data), 0) <= $5 offset 0
    ) r
    left join lateral (select e.data from {t}.events e where r.event_data is null and e.id = r.event offset 0) e on true
    left join lateral (
        select array_agg(s.sid order by s.seq) as sids, array_agg(s.status = 'c' order by s.seq) as completed,
               array_agg(case when s.status = 'c' then s.output else s.error end order by s.seq) as results,
               bool_or(s.kind = 'n' and s.status = 'c' and s.output is null) as unnamed
        from {t}.steps s where b.steps > 0 and s.run = b.id and s.status in ('c', 'f') offset 0
    ) s on true
    left join lateral (
        select array_agg(w.sid) as sids, array_agg(w.kind::text) as kinds
        from rt.wait w where (b.steps > 0 or b.att > 0) and w.run = b.id and w.sid is not null offset 0
    ) o on true
    left join lateral (
        select array_agg(f.sid) as sids, array_agg(f.failures) as failures
        from (select a.sid, max(a.k) as failures from {t}.attempts a
              where b.att > b.att_from and a.run = b.id and a.n >= b.att_from and a.sid is not null group by a.sid) f
        offset 0
    ) a on true
    where coalesce(octet_length(e.data), 0) <= $5
    offset 0
) l on true;

-- name: claim_remembered
-- Take the lease of queued runs of a tenant ($2) of which the caller remembers all but what their waits came to: those to which
-- nothing has happened since but that (the run, its epoch, rev and mail, and the wait's step), and which are under the limits of
-- now. $8: the worker's session that a run is meant for which only workers serve; null: it is none such. With what the wait came
-- to, unless that has more than $9 bytes (`status` null): until the answer is taken, it holds the rows of all (rulings C11). `open`: the
-- wait is not over, as what has come was of another.
with c as (
    update rt.live r set st = 'r', owner = $1, epoch = r.epoch + 1, qk = null, affinity = l.session,
                         given = case when l.session is null then r.given else r.epoch + 1 end,
                         started = coalesce(r.started, rt.now()), taken = rt.now()
    from (
        select o.at, b.session, b.sid
        from unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::int[], $7::text[], $8::uuid[]) b(run, epoch, rev, mail, sid, session)
        cross join lateral (
            select r.ctid as at from rt.live r
            where r.id = b.run and r.st = 'q' and r.epoch = b.epoch and r.rev = b.rev and r.mail = b.mail
              and r.pooled = (b.session is not null) and r.gv = coalesce((select g.version from rt.gate_rule g where g.wf = r.wf), 0)
            for no key update skip locked
        ) o
        where not exists (select from rt.owner o where o.id = $1 and o.dead offset 0)
    ) l
    where r.ctid = l.at
    returning r.id, r.bytes, r.gv, r.ga, r.gb, r.taken, l.sid
)
select c.*, (select d.v from rt.defs_version d where d.tenant = $2) as version, s.status, s.output, s.error,
       case when s.status is null then exists (select from rt.wait w where w.run = c.id and w.sid = c.sid offset 0) end as open
from c left join lateral (
    select s.status::text as status, s.output, s.error from {t}.steps s
    where s.run = c.id and s.sid = c.sid and s.status in ('c', 'f')
      and coalesce(octet_length(s.output), 0) + coalesce(octet_length(s.error), 0) <= $9
    offset 0
) s on true;

-- name: claim_remembered_one
-- The same for one run, as a lone event resumes it.
with c as (
    update rt.live r set st = 'r', owner = $1, epoch = r.epoch + 1, qk = null, affinity = $8::uuid,
                         given = case when $8::uuid is null then r.given else r.epoch + 1 end,
                         started = coalesce(r.started, rt.now()), taken = rt.now()
    where r.id = (
        select l.id from rt.live l
        where l.id = $3::uuid and l.st = 'q' and l.epoch = $4::bigint and l.rev = $5::bigint and l.mail = $6::int
          and l.pooled = ($8::uuid is not null) and l.gv = coalesce((select g.version from rt.gate_rule g where g.wf = l.wf), 0)
          and not exists (select from rt.owner o where o.id = $1 and o.dead offset 0)
        for no key update skip locked
    )
    returning r.id, r.bytes, r.gv, r.ga, r.gb, r.taken
)
select c.*, (select d.v from rt.defs_version d where d.tenant = $2) as version, s.status, s.output, s.error,
       case when s.status is null then exists (select from rt.wait w where w.run = c.id and w.sid = $7::text offset 0) end as open
from c left join lateral (
    select s.status::text as status, s.output, s.error from {t}.steps s
    where s.run = c.id and s.sid = $7::text and s.status in ('c', 'f')
      and coalesce(octet_length(s.output), 0) + coalesce(octet_length(s.error), 0) <= $9
    offset 0
) s on true;

-- name: claim_hinted_fair
select * from rt.claim_hinted_fair_v1($1, $2, $3, $4, $5, $6);

-- name: claim_oldest
select * from rt.claim_oldest_v1($1, $2, $3, $4);

-- name: wake
select * from rt.wake_v1($1, $2, $3, $4, $5, $6, $7, $8);

-- name: end_wait
-- Let the session's statement fail if it just waits for a moment.
select pg_cancel_backend(a.pid) from pg_stat_activity a
where a.pid = $1 and a.datname = current_database() and a.wait_event = 'PgSleep';

-- name: claim_pooled
select * from rt.claim_pooled_v1($1, $2, $3, $4, $5);

-- name: look
-- Which tenants have runs that anybody may take, and whether there is more than one tenant at all.
select (select count(*) > 1 from (select from rt.tenant limit 2) t) as shared, array(select rt.ready_tenants_v1()) as waiting;

-- name: load
-- What is stored of claimed runs, as one look sees it: a result that is delivered meanwhile is either among the steps or its wait
-- is open. $2: whether the run has steps, $3 whether it may have open waits, $4 from which attempt on failures count, null: there
-- are none. `reached_ms` is rounded down: an instant that the clock has reached for certain.
select r.id, r.source, r.event, r.event_name, r.event_ts, coalesce(r.event_data, e.data) as event_data, r.test, r.parent, r.trace,
       floor(extract(epoch from rt.now()) * 1000)::bigint as reached_ms,
       (select d.v from rt.defs_version d where d.tenant = $5) as version,
       s.sids, s.completed, s.results, s.unnamed, o.sids as open_sids, o.kinds as open_kinds, a.sids as failing_sids, a.failures
from unnest($1::uuid[], $2::bool[], $3::bool[], $4::int[]) u(run, stepped, waits, att_from)
cross join lateral (select r.* from {t}.runs r where r.id = u.run offset 0) r
left join lateral (select e.data from {t}.events e where r.event_data is null and e.id = r.event offset 0) e on true
left join lateral (
    select array_agg(s.sid order by s.seq) as sids, array_agg(s.status = 'c' order by s.seq) as completed,
           array_agg(case when s.status = 'c' then s.output else s.error end order by s.seq) as results,
           bool_or(s.kind = 'n' and s.status = 'c' and s.output is null) as unnamed
    from {t}.steps s where u.stepped and s.run = u.run and s.status in ('c', 'f') offset 0
) s on true
left join lateral (
    select array_agg(w.sid) as sids, array_agg(w.kind::text) as kinds
    from rt.wait w where u.waits and w.run = u.run and w.sid is not null offset 0
) o on true
left join lateral (
    select array_agg(f.sid) as sids, array_agg(f.failures) as failures
    from (select a.sid, max(a.k) as failures from {t}.attempts a
          where u.att_from is not null and a.run = u.run and a.n >= u.att_from and a.sid is not null group by a.sid) f
    offset 0
) a on true;

-- name: open_steps
select run, sid, kind::text as kind from rt.wait where run = any ($1) and sid is not null;

-- name: delivered
select sid, status::text as status, output, error from {t}.steps where run = $1 and sid = any ($2) and status in ('c', 'f');

-- name: delivered_last
-- What waits of a run came to, the last ones.
select sid, status::text as status, output, error from {t}.steps
where run = $1 and kind in ('s', 'e', 'i') and status in ('c', 'f') order by t1 desc limit $2;
