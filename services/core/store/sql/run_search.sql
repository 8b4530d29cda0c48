-- Where a list of runs looks for its next ids, newest first. Each source answers ids in [$1, $2) and at most a window ($3) of
-- them, by an index: its cost grows with the window, not with the history.

-- name: project
select id from {t}.projects where tenant = $1 and slug = $2;

-- name: workflows
select id from {t}.workflows
where tenant = $1 and ($2::int is null or project = $2) and ($3::text is null or name = $3);

-- name: newest
select r.id from {t}.runs r where r.tenant = $4 and r.id >= $1 and r.id < $2 order by r.id desc limit $3;

-- name: newest_of_workflows
select r.id from unnest($4::int[]) w(id) cross join lateral (
    select r.id from {t}.runs r where r.wf = w.id and r.id >= $1 and r.id < $2 order by r.id desc limit $3
) r
order by r.id desc limit $3;

-- name: newest_in_states
-- $5: letters of active states, $6: words of ended ones.
(select l.id from rt.live l
 where l.tenant = $4 and l.st::text = any ($5::text[]) and l.id >= $1 and l.id < $2 order by l.id desc limit $3)
union all
(select e.run from unnest($6::text[]) s(status) cross join lateral (
     select e.run from {t}.ends e where e.status = s.status and e.run >= $1 and e.run < $2 order by e.run desc limit $3
 ) e)
order by id desc limit $3;

-- name: given
select r.id from {t}.runs r where r.tenant = $4 and r.id = any ($5::uuid[]) and r.id >= $1 and r.id < $2
order by r.id desc limit $3;

-- name: newest_named
-- $5: a run's or an event's id, $6: workflows, $7: idempotency keys as stored, $8: an event's id as its sender gave it.
select f.id from (
    select r.id from {t}.runs r where r.tenant = $4 and r.id = $5
    union
    select r.id from {t}.runs r where r.event = $5
    union
    select i.run from rt.idem i where i.wf = any ($6::int[]) and i.key = any ($7::text[])
    union
    select r.id from rt.event_ids i join {t}.runs r on r.event = i.event
    where i.tenant = $4 and i.src = any (array['u', 'q', 'w']::"char"[]) and i.eid = $8
) f
where f.id >= $1 and f.id < $2 order by f.id desc limit $3;

-- name: matching
-- Those of the ids ($2) that are what the filter asks for.
select r.id from {t}.runs r
left join rt.live l on l.id = r.id and l.tenant = $1
left join {t}.ends e on e.tenant = $1 and e.run = r.id
where r.tenant = $1 and r.id = any ($2)
  and ($3::int[] is null or r.wf = any ($3))
  and ($4::text[] is null or coalesce(l.st::text, e.status) = any ($4))
  and ($5::bigint is null or rt.ms(r.created_at) >= $5)
  and ($6::bigint is null or rt.ms(r.created_at) < $6)
  and ($7::jsonb is null or r.tags @> $7)
order by r.id desc limit $8;
