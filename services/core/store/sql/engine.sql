-- name: start
select * from rt.start_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24);

-- name: submit
select * from rt.submit_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27);

-- name: submit_with_waits
select * from rt.submit_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46);

-- name: stored_starts
select * from rt.stored_runs_v1($1, $2);

-- name: open_waits
select rt.wait_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19);

-- name: finish
select * from rt.finish_v1($1, $2, $3, $4, true);

-- name: lock_and_deliver
select * from rt.lock_and_deliver_v1($1, $2, $3, $4, $5, $6, $7, $8);

-- name: deliver_event
-- One event to many waits.
select * from rt.deliver_v1($1, array_fill('c'::text, array[cardinality($1::uuid[])]), null, null,
    array_fill($2::uuid, array[cardinality($1::uuid[])]), $4, $3);

-- name: lock_runs
-- Waits for rows, in the order of ids: only ingest and run control do (rulings C11).
select id, tenant, owner, parent from rt.live where tenant = $1 and id = any ($2) order by id for no key update;

-- name: begin_accept
select * from rt.begin_accept_v1($1, $2, $3, $4, $5, $6, $7);

-- name: accepted_before
select i.src::text as src, i.eid, i.accept_id, e.id, e.name, e.effects
from unnest($2::text[], $3::text[]) u(src, eid)
cross join lateral (
    select i.* from rt.event_ids i where i.tenant = $1 and i.src = u.src::"char" and i.eid = u.eid offset 0
) i
cross join lateral (select e.id, e.name, e.effects from {t}.events e where e.id = i.event offset 0) e;

-- name: stored_events
select id, name, effects, sha256(convert_to(data, 'UTF8')) as digest from {t}.events where id = any ($1);

-- name: stored_runs
select id from {t}.runs where id = any ($1);

-- name: find_waits
-- One look into the index a key, whatever the planner knew of the table when it made the plan: `offset 0` keeps it from
-- joining all waits of the tenant instead, which is cheap only while there are few. Of a condition of more than 4 KiB only the
-- size: there may be many.
select u.n, w.id, w.run, w.kind, w.event, w.size, case when w.size <= 4096 then w.cond end as cond
from unnest($2::int[], $3::bigint[], $4::bigint[], $5::bigint[]) u(n, name_h, path_h, val_h)
cross join lateral (
    select w.id, w.run, w.kind::text as kind, w.event, w.cond, octet_length(w.cond) as size, w.due_at from rt.wait w
    where w.tenant = $1 and w.name_h = u.name_h and w.path_h = u.path_h and w.val_h = u.val_h and w.kind in ('e', 'x')
    offset 0
) w
where w.kind = 'e' or w.due_at is null or w.due_at > rt.now()
limit $6;

-- name: idle_paths
select * from rt.idle_paths_v1($1, $2, $3, $4);

-- name: forget_paths
select rt.forget_paths_v1($1, $2, $3);

-- name: count_scanned
-- Of how many waits each event of this name is compared with one by one. Counts no further than $3.
select count(*) from (
    select from rt.wait w where w.tenant = $1 and w.name_h = $2 and w.path_h = 0 and w.val_h = 0 and w.kind in ('e', 'x') limit $3
) w;

-- name: condition
select cond from rt.wait where id = $1;

-- name: store_events
select rt.store_events_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13);

-- name: accept
select * from rt.accept_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66, $67, $68, $69, $70, $71, $72, $73);

-- name: now_ms
select rt.ms(rt.now());

-- name: end_of
select status from {t}.ends where run = $1;

-- name: send_marks
-- Not locked: carrying a mark out twice is harmless, holding it over other transactions is not.
select id, tenant, body from rt.mark
where kind = 'send_event' and id > $3 and created_at <= rt.now() - $1::bigint * interval '1 millisecond'
order by id limit $2;

-- name: name_sent
update {t}.steps set output = $3 where run = $1 and sid = $2 and kind = 'n' and status = 'c' and output is null;

-- name: delete_marks
delete from rt.mark where id = any ($1);

-- name: keep_children
-- Of this end only: what an earlier life of the run has left to be done stays.
delete from rt.mark where target = $1 and kind = 'cancel_children' and xmin = pg_current_xact_id()::xid;

-- name: retry
select * from rt.retry_v1($1, $2, $3, $4, $5, $6, $7);

-- name: copy_steps
select rt.copy_steps_v1($1, $2, $3, $4);

-- name: step_place
select seq from {t}.steps where run = $1 and sid = $2 and status in ('c', 'f');

-- name: horizon
-- Transactions from this number on may not see what is committed before this statement; all earlier ones have a snapshot.
select pg_snapshot_xmax(pg_current_snapshot())::text::bigint;

-- name: xmin
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: arming_wait
select id, run, tenant, event, cond, since, rt.ms(since) as since_ms, rt.ms(rt.now()) as now_ms from rt.wait where id = $1 and arming;

-- name: arming_waits
-- The oldest of each tenant: one with very many does not keep the others waiting.
with recursive t as (
    (select w.tenant from rt.wait w where w.arming order by w.tenant limit 1)
    union all
    select (select w.tenant from rt.wait w where w.arming and w.tenant > t.tenant order by w.tenant limit 1) from t where t.tenant is not null
)
select w.tenant, w.id
from t
cross join lateral (
    select w.tenant, w.id from rt.wait w
    where w.arming and w.tenant = t.tenant and w.created_at <= rt.now() - $1::bigint * interval '1 millisecond'
    order by w.created_at limit $2 offset 0
) w
where t.tenant is not null;

-- name: looks
update rt.wait set looked_at = rt.now() where id = any ($1) and looked_at is null;

-- name: is_arming
select exists (select from rt.wait where id = $1 and arming);

-- name: armed
update rt.wait set arming = false where id = $1;

-- name: had_event
select exists (select from {t}.steps s where s.run = $1 and s.event = $2)
    or exists (select from {t}.runs r where r.id = $1 and r.event = $2);

-- name: past_events
-- The next events of a name that a look back comes to, behind $4 and before $5: so many ($6) at most, and of so many bytes ($7),
-- but at least one. Each is told, with its data if it was received since $2 and the run ($3) has not had it; `more`: there are more.
select e.id, e.name, e.ts, e.more, case when e.received_at >= $2 and e.id not in (
    select s.event from {t}.steps s where s.run = $3 and s.event is not null
    union all select r.event from {t}.runs r where r.id = $3 and r.event is not null
) then e.data end as data
from (
    select e.*, count(*) over () >= $6 or sum(octet_length(e.data)) over () > $7 as more,
           sum(octet_length(e.data)) over (order by e.id) - octet_length(e.data) as before
    from (
        select e.id, e.name, e.data, e.ts, e.received_at from {t}.events e where e.name = $1 and e.id > $4 and e.id < $5
        order by e.id limit $6
    ) e
) e
where e.before < $7 order by e.id;

-- name: odd_past_events
-- The same of events whose ids do not tell when they were received, by that time: behind ($3, $4), until $5 (unix milliseconds).
select e.id, e.name, e.ts, e.received_at, e.more, case when e.id not in (
    select s.event from {t}.steps s where s.run = $2 and s.event is not null
    union all select r.event from {t}.runs r where r.id = $2 and r.event is not null
) then e.data end as data
from (
    select e.*, count(*) over () >= $6 or sum(octet_length(e.data)) over () > $7 as more,
           sum(octet_length(e.data)) over (order by e.received_at, e.id) - octet_length(e.data) as before
    from (
        select e.id, e.name, e.data, e.ts, e.received_at from {t}.events e
        where e.odd_id and e.name = $1 and e.received_at >= $3 and (e.received_at, e.id) > ($3, $4)
          and e.received_at <= to_timestamp($5::bigint / 1000.0)
        order by e.received_at, e.id limit $6
    ) e
) e
where e.before < $7 order by e.received_at, e.id;

-- name: run_event_marks
select id, tenant, target, body from rt.mark
where kind = 'run_event' and id > $3 and created_at <= rt.now() - $1::bigint * interval '1 millisecond' order by id limit $2;

-- name: ended_run
select r.id, r.event, r.event_name, r.test, r.trace, r.project as project_id, w.name as workflow, p.slug as project,
       en.output, en.error, coalesce(r.event_data, e.data) as event_data
from {t}.runs r
join {t}.workflows w on w.id = r.wf
join {t}.projects p on p.id = r.project
left join lateral (select e.data from {t}.events e where r.event_data is null and e.id = r.event offset 0) e on true
left join {t}.ends en on en.run = r.id
where r.id = $1;

-- name: store_fan_out
insert into rt.mark (tenant, kind, body) select $1, 'fan_out', b from unnest($2::text[]) with ordinality u(b, n) order by n returning id;

-- name: fan_out_marks
-- Of each tenant one, then of each another: one with very many does not keep the others waiting.
select m.id from (
    select id, row_number() over (partition by tenant order by id) as place from rt.mark
    where kind = 'fan_out' and created_at <= rt.now() - $1::bigint * interval '1 millisecond'
) m order by m.place, m.id limit $2;

-- name: take_fan_out
delete from rt.mark where id = (select id from rt.mark where id = $1 for update skip locked) returning tenant, body;

-- name: stored_event
select name, data, ts from {t}.events where id = $1;

-- name: apply_marks
select run, tenant, owner, ga, gb, cancelled, resolved from rt.apply_marks_v1($1, $2, $3);
