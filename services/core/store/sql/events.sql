-- Reads of events. The sources of a list answer ids in [$1, $2), newest first, at most a window ($3) of them.

-- name: project
select id from {t}.projects where tenant = $1 and slug = $2;

-- name: newest
select v.id from {t}.events v where v.tenant = $4 and v.id >= $1 and v.id < $2 order by v.id desc limit $3;

-- name: newest_of_names
select v.id from unnest($4::text[]) k(name) cross join lateral (
    select v.id from {t}.events v where v.name = k.name and v.id >= $1 and v.id < $2 order by v.id desc limit $3
) v
order by v.id desc limit $3;

-- name: names
-- The different names between two, by a loose scan of the index: the cost grows with names, not with events.
with recursive n as (
    (select v.name from {t}.events v where v.name ~>=~ $1 and v.name ~<~ $2 order by v.name using ~<~ limit 1)
    union all
    select (select v.name from {t}.events v where v.name ~>~ n.name and v.name ~<~ $2 order by v.name using ~<~ limit 1)
    from n where n.name is not null
)
select n.name from n where n.name is not null limit $3;

-- name: matching
-- Those of the ids ($2) that are what the filter asks for. $3: the beginning of a name.
select v.id from {t}.events v
where v.tenant = $1 and v.id = any ($2)
  and ($3::text is null or starts_with(v.name, $3))
  and ($4::text is null or v.source = $4)
  and ($5::int is null or v.project = $5)
  and ($6::bigint is null or rt.ms(v.received_at) >= $6)
  and ($7::bigint is null or rt.ms(v.received_at) < $7)
order by v.id desc limit $8;

-- name: events
-- $3: with their data.
select v.id, v.name, case when $3 then v.data end as data, v.ts, v.event_id, v.source, p.slug as project, v.run, v.test,
       v.effects, rt.ms(v.received_at) as received_ms, v.trace
from {t}.events v left join {t}.projects p on p.tenant = $1 and p.id = v.project
where v.tenant = $1 and v.id = any ($2)
order by v.id desc;
