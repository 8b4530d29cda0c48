-- name: version
select v from rt.defs_version where tenant = $1;

-- name: versions
select tenant, v from rt.defs_version where tenant = any ($1);

-- name: bump
update rt.defs_version set v = v + 1, hears = array(
    select distinct substr(t.event, length('runr/run.') + 1) from rt.workflows w
    cross join lateral (
        select x ->> 'event' as event from json_array_elements(w.definition::json -> 'triggers') x
    ) t
    where w.tenant = $1 and w.archived_at is null and w.definition like '%"event":"runr/run.%' and starts_with(t.event, 'runr/run.')
    order by 1)
where tenant = $1;

-- name: load_projects
select id, slug, endpoint_url, signing_key, trigger_type, queue_stream,
       endpoint_url is null and defs_source is not distinct from 'worker' as by_workers,
       case when rotated_at + $1::bigint * interval '1 millisecond' > rt.now() then previous_key end as previous_key,
       rt.ms(rotated_at) + $1::bigint - rt.ms(rt.now()) as previous_left_ms
from {t}.projects;

-- name: load_workflows
select id, project, name, definition, is_active, archived_at is not null as archived,
       coalesce((select g.version from rt.gate_rule g where g.wf = w.id), 0) as gate_version
from {t}.workflows w order by id;

-- name: of_project
select id, name, definition, is_active, rt.ms(archived_at) as archived_ms, rt.ms(created_at) as created_ms,
       rt.ms(updated_at) as updated_ms
from {t}.workflows where project = $1 order by name collate "C";

-- name: page
select id, name, definition, is_active, rt.ms(archived_at) as archived_ms, rt.ms(created_at) as created_ms,
       rt.ms(updated_at) as updated_ms
from {t}.workflows
where project = $1 and ($2::text is null or name > $2 collate "C") and ($3 or archived_at is null)
order by name collate "C" limit $4;

-- name: by_name
select id, name, definition, is_active, rt.ms(archived_at) as archived_ms, rt.ms(created_at) as created_ms,
       rt.ms(updated_at) as updated_ms
from {t}.workflows where project = $1 and name = $2;

-- name: put
insert into rt.workflows (tenant, project, name, definition)
select $1, $2, u.name, u.definition from unnest($3::text[], $4::text[]) u(name, definition) order by u.name
on conflict (tenant, project, name)
do update set definition = excluded.definition, archived_at = null, updated_at = rt.now();

-- name: archive
update {t}.workflows set archived_at = rt.now(), updated_at = rt.now() where id = any ($1);

-- name: archive_all
update {t}.workflows set archived_at = rt.now(), updated_at = rt.now() where project = $1 and archived_at is null;

-- name: count_active
-- Active runs of these workflows, at most $3 of all of them together. No index tells: this walks over what is active.
select l.wf, count(*) as n from (
    select l.wf from rt.live l where l.tenant = $1 and l.wf = any ($2) order by l.id desc limit $3
) l
group by l.wf;

-- name: set_active
update {t}.workflows set is_active = $2, updated_at = rt.now() where id = $1;
