-- Removing what is old (engine section 11). Rows are held before they are judged: a retry or a replay that holds them
-- first keeps them, one that comes later finds them gone.

-- name: take
select * from rt.take_prune_v1();

-- name: plan_anew
-- A batch is rare and large: its statements are planned for the tables as they are, not as they were when first looked at.
set local plan_cache_mode = force_custom_plan;

-- name: go_on
-- The pass goes on behind the tenants that wait for theirs.
update rt.prune set stage = $2, after_at = $3, after_id = $4, next_at = rt.now() where tenant = $1;

-- name: pass_over
update rt.prune set stage = 'runs', after_at = null, after_id = null, next_at = rt.prune_slot(tenant, rt.now()) where tenant = $1;

-- name: pace
update rt.prune_pace set free_at = rt.now() + $1::bigint * interval '1 millisecond';

-- name: old_runs
-- The oldest ends behind ($2, $3), until there are $4 of them or they weigh $5. The weight is about the rows that go with a run,
-- its large values counted as the pieces they are stored in.
select o.run, o.ended, o.weight from (
    select e.run, e.ended, e.weight, sum(e.weight) over (order by e.ended, e.run) - e.weight as before
    from (
        select e.run, e.ended, (3 + e.steps + e.att + (e.bytes + coalesce(pg_column_size(e.output), 0)) / 2000)::int as weight
        from {t}.ends e where e.ended < $1 and (e.ended, e.run) > ($2, $3) order by e.ended, e.run limit $4
    ) e
) o where o.before < $5 order by o.ended, o.run;

-- name: hold_runs
select r.id from {t}.runs r where r.id = any ($1) order by r.id for update skip locked;

-- name: hold_keys
-- Those whose idempotency key is held, or that have none.
with k as materialized (
    select i.run from rt.idem i where i.run = any ($1) order by i.wf, i.key for update skip locked
)
select u.run from unnest($1::uuid[]) u(run)
where exists (select from k where k.run = u.run) or not exists (select from rt.idem i where i.run = u.run);

-- name: delete_runs
-- Held runs that have ended and are old still, and that nobody waits for.
with gone as (
    delete from {t}.ends e where e.run = any ($1) and e.ended < $2
        and not exists (select from rt.live l where l.id = e.run)
        and not exists (select from rt.wait w where w.child = e.run)
    returning e.run
), s as (
    delete from {t}.steps s using gone where s.run = gone.run
), a as (
    delete from {t}.attempts a using gone where a.run = gone.run
), i as (
    delete from rt.idem i using gone where i.run = gone.run
), r as (
    delete from {t}.runs r using gone where r.id = gone.run
)
select count(*) from gone;

-- name: old_events
-- Events behind $1, in the order of their ids, which is about that of their coming.
select o.id, o.is_old, o.weight from (
    select v.id, v.is_old, v.weight, sum(v.weight) over (order by v.id) - v.weight as before
    from (
        select v.id, v.received_at < $2 as is_old, (2 + pg_column_size(v.data) / 2000)::int as weight
        from {t}.events v where v.id > $1 and v.id < $3 order by v.id limit $4
    ) v
) o where o.before < $5 order by o.id;

-- name: hold_events
select v.id from {t}.events v where v.id = any ($1) order by v.id for update skip locked;

-- name: delete_events
-- Held events that no active run was started by, with their ids: these may come again.
with gone as (
    delete from {t}.events v where v.id = any ($1) and v.received_at < $2
        and not exists (select from {t}.runs r join rt.live l on l.id = r.id where r.event = v.id)
    returning v.id
), i as (
    delete from rt.event_ids i using gone where i.event = gone.id
)
select count(*) from gone;

-- name: delete_usage
with gone as (
    delete from {t}.usage u using (select o.wf, o.day, o.kind from {t}.usage o where o.day < $1 order by o.day limit $2) o
    where u.wf = o.wf and u.day = o.day and u.kind = o.kind
    returning 1
)
select count(*) from gone;

-- name: delete_jobs
with gone as (
    delete from rt.bulk_job j using (
        select o.id from rt.bulk_job o where o.tenant = $1 and o.ended_at < $2 order by o.ended_at limit $3
    ) o where j.id = o.id
    returning 1
)
select count(*) from gone;
