-- name: insert
-- Nothing is inserted while the same is asked for already, or the tenant has too many. The first turn is a moment later, so
-- that no run that the job makes is as old as the job.
insert into rt.bulk_job (id, tenant, project, action, filter, print, total, partial, trace, turn_at)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, rt.now() + interval '5 milliseconds'
where (select count(*) from rt.bulk_job j where j.tenant = $2 and j.ended_at is null) < $10
on conflict do nothing returning id;

-- name: same_active
select id from rt.bulk_job where tenant = $1 and project = $2 and action = $3 and print = $4 and ended_at is null;

-- name: one
select j.id, p.slug as project, j.action, j.state, j.total, j.partial, j.succeeded, j.skipped, j.failed, j.faults, j.error,
       rt.ms(j.created_at) as created_ms, rt.ms(j.ended_at) as ended_ms
from rt.bulk_job j join {t}.projects p on p.id = j.project where j.tenant = $1 and j.id = $2;

-- name: page
select j.id, p.slug as project, j.action, j.state, j.total, j.partial, j.succeeded, j.skipped, j.failed, j.faults, j.error,
       rt.ms(j.created_at) as created_ms, rt.ms(j.ended_at) as ended_ms
from rt.bulk_job j join {t}.projects p on p.id = j.project
where j.tenant = $1 and j.project = $2 and ($3::uuid is null or j.id < $3) order by j.id desc limit $4;

-- name: stop
update rt.bulk_job set state = 'stopped', ended_at = rt.now() where tenant = $1 and id = $2 and ended_at is null;

-- name: take
-- The job that has waited longest. Its next turn is in a while, should whoever takes it die.
update rt.bulk_job j set state = 'running', turn_at = rt.now() + $1::bigint * interval '1 millisecond'
from (
    select t.id from rt.bulk_job t where t.ended_at is null and t.turn_at <= rt.now()
    order by t.turn_at limit 1 for no key update skip locked
) t where j.id = t.id
returning j.id, j.tenant, j.action, j.filter, j.cursor, j.trace;

-- name: hold
-- Held until the end of the transaction, if it is still where the caller found it.
select faults from rt.bulk_job where id = $1 and state = 'running' and cursor is not distinct from $2 for no key update;

-- name: advance
update rt.bulk_job set cursor = $2, succeeded = succeeded + $3, skipped = skipped + $4, failed = failed + $5, faults = $6,
                       turn_at = rt.now(), state = case when $7 then 'completed' else state end,
                       ended_at = case when $7 then rt.now() end
where id = $1;

-- name: give_up
update rt.bulk_job set state = 'failed', error = $2, ended_at = rt.now() where id = $1 and ended_at is null;
