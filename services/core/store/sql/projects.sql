-- name: next_id
-- Taken before the row is written: the sealed key names its project.
select nextval('rt.project_id')::int;

-- name: insert
insert into rt.projects (tenant, id, slug, name, trigger_type, queue_stream, signing_key, key_print)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (tenant, slug) do nothing
returning id;

-- name: by_slug
select id, slug, name, trigger_type, queue_stream, endpoint_url, signing_key, previous_key, key_print, defs_file, defs_hash,
       defs_source, sync_status, rt.ms(rotated_at) as rotated_ms, rt.ms(synced_at) as synced_ms, rt.ms(created_at) as created_ms,
       rt.ms(rt.now()) as now_ms
from {t}.projects where slug = $1;

-- name: lock_by_slug
-- Whoever changes a project or its definitions holds this row, so that two changes happen one after the other.
select id, slug, name, trigger_type, queue_stream, endpoint_url, signing_key, previous_key, key_print, defs_file, defs_hash,
       defs_source, sync_status, rt.ms(rotated_at) as rotated_ms, rt.ms(synced_at) as synced_ms, rt.ms(created_at) as created_ms,
       rt.ms(rt.now()) as now_ms
from {t}.projects where slug = $1 for no key update;

-- name: list
select id, slug, name, trigger_type, queue_stream, endpoint_url, signing_key, previous_key, key_print, defs_file, defs_hash,
       defs_source, sync_status, rt.ms(rotated_at) as rotated_ms, rt.ms(synced_at) as synced_ms, rt.ms(created_at) as created_ms,
       rt.ms(rt.now()) as now_ms
from {t}.projects where $1::text is null or slug > $1 collate "C" order by slug collate "C" limit $2;

-- name: exists_any
select exists (select from {t}.projects);

-- name: update_config
update {t}.projects set name = $2, trigger_type = $3, queue_stream = $4 where id = $1;

-- name: set_key
update {t}.projects set signing_key = $2, key_print = $3 where id = $1;

-- name: rotate_key
update {t}.projects set previous_key = signing_key, signing_key = $2, key_print = $3, rotated_at = rt.now() where id = $1;

-- name: set_endpoint
-- What a sync said of an endpoint goes with it.
update {t}.projects set endpoint_url = $2, sync_status = case when $2::text is not null then sync_status end,
       synced_at = case when $2::text is not null then synced_at end where id = $1;

-- name: set_file
update {t}.projects set defs_file = $2 where id = $1;

-- name: set_declared
update {t}.projects set defs_hash = $2, defs_source = $3 where id = $1;

-- name: set_synced
update {t}.projects set sync_status = $2, synced_at = rt.now() where id = $1;

-- name: delete
with p as (delete from rt.pool where project = $1)
delete from {t}.projects where id = $1;

-- name: set_pool
-- Whether workers alone serve the project, after any change of what says so.
select rt.set_pool_v1($1, $2);

-- name: is_deleted
-- A statement of its own, after the row is held: one that has waited for the row would still see what was there before.
select exists (select from rt.deleted_project where project = $1);

-- name: begin_delete
insert into rt.deleted_project (project, tenant) values ($1, $2) on conflict do nothing;

-- name: run_is_deleted
select exists (select from {t}.runs r join rt.deleted_project d on d.project = r.project where r.id = $1);

-- name: writers
-- Transactions that may have started or re-opened runs: each has held this lock since before it asked whether it may.
select l.virtualtransaction from pg_locks l
where l.locktype = 'relation' and l.relation = 'rt.live'::regclass and l.mode = 'RowExclusiveLock' and l.granted
  and l.database = (select d.oid from pg_database d where d.datname = current_database()) and l.pid <> pg_backend_pid();

-- name: workflow_ids
select id from {t}.workflows where project = $1;

-- name: active_runs
select id from rt.live where tenant = $1 and wf = any ($2) limit $3;

-- name: lock_active_runs
select id from rt.live where tenant = $1 and id = any ($2) order by id for no key update;

-- name: some_runs
select id from {t}.runs where wf = any ($1) limit $2;

-- name: hold_runs
-- Those that have ended, held against retention and whoever is about to be told that it may not retry them; in the order in
-- which all hold runs.
select id from {t}.runs where id = any ($1) and id <> all (array(select l.id from rt.live l where l.id = any ($1)))
order by id for update;

-- name: delete_runs
with s as (delete from {t}.steps where run = any ($1)),
     a as (delete from {t}.attempts where run = any ($1)),
     e as (delete from {t}.ends where run = any ($1)),
     i as (delete from rt.idem where run = any ($1))
delete from {t}.runs where id = any ($1);

-- name: has_runs
select exists (select from {t}.runs where wf = any ($1));

-- name: delete_workflows
with c as (delete from rt.cron where wf in (select id from {t}.workflows where project = $1)),
     g as (delete from rt.gate_rule where wf in (select id from {t}.workflows where project = $1))
delete from {t}.workflows where project = $1;

-- name: sealed_keys
-- Over all tenants, so through the parent: asked when the encryption key has changed. Nobody rotates a key meanwhile.
select tenant, id, slug, signing_key, previous_key from rt.projects
where signing_key is not null or previous_key is not null order by tenant, id for no key update;

-- name: reseal
update {t}.projects set signing_key = $2, previous_key = $3 where id = $1;

-- name: key_marks
-- Over all tenants, so through the parent: asked once, when a process starts.
select distinct substr(signing_key, 1, $1) from rt.projects where signing_key is not null;
