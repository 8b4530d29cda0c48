-- What has changed of runs. Postgres itself says which transaction has written a row (xmin): rows that were written by one
-- that a reader's moment did not know are what is new to it. Numbers of 32 bits are completed by those of now; a row that is
-- so old that its number comes round again is told once more, and none is left out.

-- name: marks
-- For all watchers of a process at once, whatever their tenants: it tells only of ids that were asked for. Whatever the engine
-- does to an active run, it writes this row.
select l.id, l.xmin::text::bigint as mark from rt.live l where l.id = any ($1);

-- name: moment
-- Of the snapshot that this transaction reads.
select left(md5(c.system_identifier::text), 8) as server,
       pg_snapshot_xmin(pg_current_snapshot())::text::bigint as known,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint as now,
       r.retries, l.xmin::text::bigint as mark, coalesce(l.att > 0, true) as may_have_failed
from {t}.runs r
left join rt.live l on l.id = r.id and l.tenant = $1
cross join pg_control_system() c
where r.tenant = $1 and r.id = $2;

-- name: places
-- A page of the steps that were written since transaction $6, in step order: as runs.sql has them in `step_places`. A step that
-- failed and has no result is always told, as it leaves no row behind when its pause is over. $7 is the number of now.
with p as (
    select s.sid, s.seq, s.xmin::text::bigint as xid,
           coalesce(octet_length(s.output), 0) + coalesce(octet_length(s.error), 0) + coalesce(octet_length(s.input), 0) as size
    from {t}.steps s where s.tenant = $1 and s.run = $2
    union all
    select t.sid, t.seq, t.xmin::text::bigint, coalesce(octet_length(t.fields), 0)
    from rt.wait t where t.run = $2 and t.tenant = $1 and t.kind in ('s', 'e', 'c', 'b')
    union all
    select a.sid, null, a.xmin::text::bigint, octet_length(a.error)
    from {t}.attempts a where a.tenant = $1 and a.run = $2 and a.sid is not null
), k as (
    select p.sid collate "C" as sid, coalesce(max(p.seq), 2147483647) as seq, sum(p.size) as size,
           case when max(p.seq) is null then $7::bigint else max($7::bigint - (($7::bigint - p.xid) & 4294967295)) end as xid
    from p group by p.sid collate "C"
), n as (
    select k.seq, k.sid, row_number() over o as n, sum(k.size) over o as total, count(*) over () as remaining
    from k where (k.seq, k.sid) > ($3, $4 collate "C") and k.xid >= $6
    window o as (order by k.seq, k.sid rows unbounded preceding)
)
select seq, sid, remaining from n where n = 1 or (n <= 1000 and total <= $5) order by n;
