-- Runs and the workers that connect to executors over streams.

-- Note whether workers alone serve a project, by its row, which the caller holds.
create function rt.set_pool_v1(p_tenant int, p_project int) returns void language plpgsql as $$
begin
    if exists (select from rt.projects p where p.tenant = p_tenant and p.id = p_project
               and p.endpoint_url is null and p.defs_source = 'worker') then
        insert into rt.pool (project, tenant) values (p_project, p_tenant) on conflict do nothing;
    else
        delete from rt.pool where project = p_project;
    end if;
    if found then
        update rt.defs_version set v = v + 1 where tenant = p_tenant;  -- it is among what caches know
    end if;
end $$;

-- Let anybody claim queued runs whose project is no pool any more, or is gone: a start may have read it just before. Answers which.
-- Workflows with such runs are found by a loose scan: the cost grows with them, not with runs.
create function rt.unpool_v1(p_limit int) returns setof uuid language sql as $$
    with recursive t as (
        (select r.wf, r.tenant from rt.live r where r.st = 'q' and r.pooled order by r.wf limit 1)
        union all
        select n.wf, n.tenant from t cross join lateral (
            select r.wf, r.tenant from rt.live r where r.st = 'q' and r.pooled and r.wf > t.wf order by r.wf limit 1
        ) n
    ), gone as materialized (
        select t.wf from t where not exists (
            select from rt.workflows w cross join lateral (select from rt.pool p where p.project = w.project offset 0) p
            where w.tenant = t.tenant and w.id = t.wf offset 0)
    ), c as (
        select q.id from gone g cross join lateral (
            select r.id from rt.live r where r.wf = g.wf and r.st = 'q' and r.pooled order by r.qk limit p_limit
            for no key update skip locked
        ) q
        limit p_limit
    )
    update rt.live r set pooled = false where r.id = any (array(select c.id from c)) returning r.id
$$;

-- Take the lease of the oldest queued runs that only workers serve, for workers that have room. Workflows are in groups, which
-- are served by the same sessions; each slot is room for one run of its group in a session, which the run is meant for.
create function rt.claim_pooled_v1(p_owner bigint, p_wf int[], p_group int[], p_slot_group int[], p_slot_session uuid[])
returns setof rt.lease language sql as $$
    with g as materialized (
        select u.grp, array_agg(u.session order by u.n) as sessions, count(*) as quota
        from unnest(p_slot_group, p_slot_session) with ordinality u(grp, session, n) group by u.grp
    ), c as materialized (
        select q.id, q.at, g.sessions[row_number() over (partition by g.grp order by q.qk)] as session,
               q.gv <> coalesce((select l.version from rt.gate_rule l where l.wf = q.wf), 0) as outdated
        from g cross join lateral (
            select o.id, o.at, o.qk, o.wf, o.gv from unnest(p_wf, p_group) w(wf, grp) cross join lateral (
                select r.id, r.ctid as at, r.qk, r.wf, r.gv from rt.live r where r.wf = w.wf and r.st = 'q' and r.pooled
                order by r.qk limit g.quota for no key update skip locked
            ) o
            where w.grp = g.grp order by o.qk limit g.quota
        ) q
        where not exists (select from rt.owner o where o.id = p_owner and o.dead offset 0)
    ), b as (
        update rt.live r set st = 'b', slot = false where r.id = any (array(select c.id from c where c.outdated))
    )
    update rt.live r set st = 'r', owner = p_owner, epoch = r.epoch + 1, qk = null, affinity = c.session, given = r.epoch + 1,
                         started = coalesce(r.started, rt.now()), taken = rt.now()
    from c where not c.outdated and r.ctid = c.at returning (rt.lease_of(r)).*
$$;

-- Give back what a process holds and does not go on with: all of it when it stops, or just these leases. What workers execute over
-- streams, or may, is kept for them for a moment, the rest is in the queue. `due_ms`: until when it is kept.
create function rt.leave_v1(p_owner bigint, p_park_ms bigint default null, p_run uuid[] default null, p_epoch bigint[] default null)
returns table (run uuid, due_ms bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_run uuid[]; v_parked uuid[];
begin
    if p_run is null then
        v_run := array(select r.id from rt.live r where r.owner = p_owner order by r.id for no key update);
    else
        v_run := array(select r.id from rt.live r join unnest(p_run, p_epoch) u(run, epoch) on u.run = r.id
                       where r.id = any (p_run) and r.owner = p_owner and r.epoch = u.epoch order by r.id for no key update of r);
    end if;
    v_parked := array(select r.id from rt.live r where r.id = any (v_run) and r.affinity is not null);
    perform from (
        select array_agg(r.id) as runs, array_agg(r.epoch) as epochs from rt.live r where r.id = any (v_run) and r.id <> all (v_parked)
    ) l cross join lateral rt.let_go_v1(p_owner, l.runs, l.epochs, true);
    return query select p.run, p.due_ms from rt.park_v1(v_parked, p_park_ms) p;
end $$;

-- Runs that are kept for these sessions, of these workflows; `epoch`: under which the worker may know them, which is that of the
-- executor that has given them to it, or was to, and those of the ones that have taken them over since.
create function rt.parked_v1(p_session uuid[], p_wf int[], p_limit int)
returns table (run uuid, epoch bigint, session uuid) language sql stable as $$
    select r.id, g.epoch, r.affinity from (
        select l.id, l.given, l.epoch, l.affinity from rt.live l
        where l.st = 'p' and l.wf = any (p_wf) and l.affinity = any (p_session) limit p_limit
    ) r cross join lateral generate_series(r.given, r.epoch - 1) g(epoch)
$$;

-- Kept runs of which the session they are kept for says that nothing of them has ever begun there: ready again, in their old place,
-- and no attempt. What was taken over once had begun, whatever it says of the epoch since. Answers the runs, and whether workers
-- alone serve them.
create function rt.never_begun_v1(p_session uuid, p_tenant int, p_run uuid[], p_epoch bigint[])
returns table (run uuid, wf int, pooled bool) language plpgsql as $$
#variable_conflict use_column
declare
    v_run uuid[];
begin
    v_run := array(select r.id from unnest(p_run, p_epoch) u(run, epoch) join rt.live r on r.id = u.run
                   where r.id = any (p_run) and r.tenant = p_tenant and r.affinity = p_session and r.st = 'p'
                     and r.epoch = u.epoch + 1 and r.given = u.epoch
                   order by r.id for no key update of r);
    delete from rt.wait w where w.run = any (v_run) and w.kind = 'p';
    return query
        update rt.live r set st = rt.ready_st(r.ga, r.slot), epoch = r.epoch + 1, affinity = null,
                             qk = coalesce(r.started, rt.now()) - r.prio * interval '1 second'
        where r.id = any (v_run) returning r.id, r.wf, r.pooled;
end $$;

-- Take over what a worker's session executes, as it says: held by another executor, alive or not, under just that epoch, or parked
-- by whoever took it from that holder. Nobody else has touched it since, so what the worker has done counts. The worker may not
-- have heard of an executor that took it over and is gone: then it names the one before. Answers the runs, and who held each
-- until now.
create function rt.take_over_v1(p_owner bigint, p_session uuid, p_tenant int, p_wf int[], p_run uuid[], p_epoch bigint[])
returns table (run uuid, was bigint, epoch bigint) language plpgsql as $$
#variable_conflict use_column
begin
    return query
        with c as materialized (
            select r.id, r.owner from unnest(p_run, p_epoch) u(run, epoch) join rt.live r on r.id = u.run
            where r.id = any (p_run) and r.tenant = p_tenant and r.wf = any (p_wf) and r.affinity = p_session
              and case when r.st = 'p'
                         or r.st = 'r' and not exists (select from rt.owner o where o.id = r.owner and not o.dead offset 0)
                       then r.given <= u.epoch and u.epoch <= r.epoch
                       else r.st = 'r' and r.epoch = u.epoch and r.owner <> p_owner end
              and not exists (select from rt.owner o where o.id = p_owner and o.dead offset 0)
            order by r.id for no key update of r
        ), w as (
            delete from rt.wait w where w.run = any (array(select c.id from c)) and w.kind = 'p'
        )
        update rt.live r set st = 'r', owner = p_owner, epoch = r.epoch + 1 from c
        where r.id = c.id and r.id = any (array(select c.id from c)) returning r.id, c.owner, r.epoch;
end $$;

-- The session that executes each of these runs from now on over its stream; null: none. Returns those that are held yet.
create function rt.assign_v1(p_owner bigint, p_run uuid[], p_epoch bigint[], p_session uuid[])
returns table (run uuid, epoch bigint) language sql as $$
    update rt.live r set affinity = u.session, given = u.epoch from unnest(p_run, p_epoch, p_session) u(run, epoch, session)
    where r.id = u.run and r.id = any (p_run) and r.owner = p_owner and r.epoch = u.epoch
    returning r.id, r.epoch
$$;
