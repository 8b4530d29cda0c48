-- name: now_ms
select (extract(epoch from rt.now()) * 1000)::double precision;

-- name: fire
select * from rt.fire_v1($1, $2, $3, $4);

-- name: upcoming
select part, due_ms from rt.upcoming_v1($1, $2, $3);

-- name: glance
select * from rt.glance_v1();

-- name: expire
select run, tenant, owner, ga, gb from rt.expire_v1($1);

-- name: owners
select server, server_ms, id, beats, silent_ms from rt.owners_v1();

-- name: try_owner_lock
select pg_try_advisory_lock($1);

-- name: drop_owner_lock
select pg_advisory_unlock($1);

-- name: bury
select rt.bury_v1($1, $2);

-- name: bury_processes
select rt.bury_processes_v1($1);

-- name: rescue
select run, tenant, ended, due_ms from rt.rescue_v1($1);

-- name: count_marks
-- Of the kinds that apply_marks knows; counts no further than the limit.
select count(*) from (
    select from rt.mark where kind in ('child_end', 'cancel_children')
        and created_at <= rt.now() - $1::bigint * interval '1 millisecond' limit $2) m;

-- name: stale_queued
select * from rt.stale_queued_v1($1, $2);

-- name: backlog
select * from rt.backlog_v1($1);

-- name: unpool
select * from rt.unpool_v1($1);

-- name: fold_usage
select rt.fold_usage_v1($1);

-- name: forget_owners
delete from rt.owner o where o.dead and o.beat_at < rt.now() - $1::bigint * interval '1 millisecond'
    and not exists (select from rt.live r where r.owner = o.id);

-- name: register_scheduler
insert into rt.owner (id, kind, node, process) values ($1, 'scheduler', $2, $3) on conflict (id) do nothing;

-- name: share_parts
select rt.share_parts_v1($1, $2);

-- name: give_parts_back
update rt.part set owner = null, epoch = epoch + 1 where owner = $1;

-- name: remove_scheduler
delete from rt.owner where id = $1;
