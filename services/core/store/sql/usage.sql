-- name: today
select (rt.now() at time zone 'UTC')::date;

-- name: sums
-- By day and by workflow. One statement: what is folded meanwhile is seen before or after it, never twice, never not at all.
select grouping(u.day) = 0 as is_day, u.day, p.slug as project, w.name as workflow,
       coalesce(sum(u.n) filter (where u.kind = 'r'), 0)::bigint as runs,
       coalesce(sum(u.n) filter (where u.kind = 's'), 0)::bigint as steps
from (
    select x.wf, x.day, x.kind, x.n from {t}.usage x where x.day between $2 and $3
    union all
    select d.wf, d.day, d.kind, d.n from rt.usage_delta d where d.tenant = $1 and d.day between $2 and $3
    union all
    select r.wf, t.day, 's', r.uses  -- of runs that are held: their holders tell it later
    from rt.live r, (select (rt.now() at time zone 'UTC')::date as day) t
    where r.owner is not null and r.tenant = $1 and r.uses > 0 and t.day between $2 and $3
) u
left join {t}.workflows w on w.id = u.wf
left join {t}.projects p on p.id = w.project
where $4::int is null or w.project = $4
group by grouping sets ((u.day), (p.slug, w.name))
order by p.slug collate "C", w.name collate "C";
