-- Runs that are to be retried or replayed, and runs to be cancelled, many at a time.

-- name: stored_runs
-- Held against retention until the end of the transaction.
select r.id, r.wf, r.event, r.event_name, r.event_ts, r.event_data, r.test, r.tags::text as tags, n.status
from {t}.runs r left join lateral (select n.status from {t}.ends n where n.run = r.id offset 0) n on true
where r.id = any ($1) order by r.id for key share of r;

-- name: hold_events
-- Read under the lock, so that retention takes none of them away from a run that is about to need it.
select e.id, e.data from {t}.events e where e.id = any ($1) order by e.id for key share;

-- name: trigger_sizes
-- How much of memory the events of these runs take.
select r.id, coalesce(octet_length(r.event_data), (select octet_length(e.data) from {t}.events e where e.id = r.event), 0) as size
from {t}.runs r where r.id = any ($1);

-- name: lock_active
-- Those that are (still) in one of these states, in the order of their ids (rulings C11).
select l.id from rt.live l where l.tenant = $1 and l.id = any ($2) and l.st::text = any ($3) order by l.id for no key update;

-- name: retry_many
-- Those that could be retried.
select u.run from unnest($2::uuid[], $3::smallint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
     u(run, max_att, timeout_ms, gv, ga, gb)
cross join lateral rt.retry_v1($1, u.run, u.max_att, u.timeout_ms, u.gv, u.ga, u.gb) x;
