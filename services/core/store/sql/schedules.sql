-- name: is_due
select rt.cron_is_due_v1();

-- name: due_ids
select id from rt.cron where next_at <= (select rt.now()) order by next_at limit $1;

-- name: take_due
select * from rt.take_cron_v1($1, $2);

-- name: now
select rt.now();

-- name: advance
update rt.cron c set next_at = case when c.is_active then u.next_at end, last_at = coalesce(u.last_at, c.last_at),
                     last_run = coalesce(u.last_run, c.last_run)
from unnest($1::bigint[], $2::timestamptz[], $3::timestamptz[], $4::uuid[]) u(id, next_at, last_at, last_run)
where c.id = u.id;

-- name: note_fired
update rt.cron set last_at = $2, last_run = $3 where id = $1 and (last_at is null or last_at <= $2);

-- name: record_fires
-- In one order everywhere, so that two never wait for each other in a circle. Answers those that had not fired.
insert into rt.cron_fire (trigger, at, run)
select u.trigger, u.at, u.run from unnest($1::bigint[], $2::timestamptz[], $3::uuid[]) u(trigger, at, run) order by u.trigger, u.at
on conflict do nothing returning run;

-- name: redirect_fires
-- The ticks whose idempotency key had led to another run.
update rt.cron_fire f set run = u.found
from unnest($1::bigint[], $2::timestamptz[], $3::uuid[]) u(trigger, at, found) where f.trigger = u.trigger and f.at = u.at;

-- name: fired
select at, run from rt.cron_fire where trigger = $1 and at = any ($2);

-- name: forget_fires
delete from rt.cron_fire where (trigger, at) in (
    select f.trigger, f.at from rt.cron_fire f where f.fired_at < $1 order by f.fired_at limit $2);

-- name: lock_of_workflows
select * from rt.cron where wf = any ($1) order by id for no key update;

-- name: delete_of_workflows
delete from rt.cron where wf = any ($1);

-- name: insert
insert into rt.cron (id, tenant, wf, place, cron, timezone, catch_up, is_active, next_at, last_at, last_run)
select coalesce(u.id, nextval(pg_get_serial_sequence('rt.cron', 'id'))), $1, u.wf, u.place, u.cron, u.timezone, u.catch_up,
       u.is_active, u.next_at, u.last_at, u.last_run
from unnest($2::bigint[], $3::int[], $4::smallint[], $5::text[], $6::text[], $7::text[], $8::bool[], $9::timestamptz[],
            $10::timestamptz[], $11::uuid[])
     u(id, wf, place, cron, timezone, catch_up, is_active, next_at, last_at, last_run);

-- name: set_active
update rt.cron set is_active = $2, next_at = $3 where id = $1;

-- name: one
select * from rt.cron where tenant = $1 and wf = $2 and place = $3;

-- name: page
select c.*, w.name as workflow from rt.cron c join {t}.workflows w on w.id = c.wf
where w.project = $1 and w.archived_at is null and ($2::text is null or (w.name collate "C", c.place) > ($2, $3))
order by w.name collate "C", c.place limit $4;
