-- Runs that are to be retried or replayed, and runs to be cancelled, many at a time.

-- name: stored_runs
-- Held against retention until the end of the transaction.
select r.id, r.wf, r.event, r.event_name, r.event_ts, r.event_data, r.test, r.tags::text as tags, n.status
from {t}.runs r left join {t}.ends n on n.run = r.id
where r.id = any ($1) order by r.id for key share of r;

-- name: hold_events
-- Read under the lock, so that retention takes none of them away from a run that is about to need it.
select e.id, e.data from {t}.events e where e.id = any ($1) order by e.id for key share;
