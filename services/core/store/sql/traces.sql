-- What spans of runs are made of, read after the fact and only while traces are on. `%1` is the flag of a sampled trace.

-- name: traced_runs
select r.id, r.trace, w.name as workflow, rt.ms(r.created_at) as created_ms, e.status, rt.ms(e.ended) as ended_ms,
       e.steps, rt.error_message(e.error) as error
from {t}.runs r
join {t}.workflows w on w.tenant = $1 and w.id = r.wf
left join {t}.ends e on e.tenant = $1 and e.run = r.id
where r.tenant = $1 and r.id = any ($2) and r.trace like '%1';

-- name: cut_waits
select s.run, s.sid, s.kind::text as kind, rt.ms(s.t0) as opened_ms, rt.ms(s.t1) as ended_ms
from {t}.steps s where s.tenant = $1 and s.run = any ($2) and s.status = 'x';

-- name: traced_events
select id, trace from {t}.events where tenant = $1 and id = any ($2) and trace like '%1';
