-- What time does to runs: due timers, deadlines, dead owners, marks that nobody applied.

-- For how long any executor has been there since an instant, as far as is known: those that left in order are not.
create function rt.executors_there_v1(p_since timestamptz, p_now timestamptz) returns interval language sql stable as $$
    select coalesce(sum(upper(t.r) - lower(t.r)), interval '0') from (
        select unnest(range_agg(tstzrange(l.came, l.went))) as r from (
            select greatest(o.boot_at, p_since) as came, case when o.dead then o.beat_at else p_now end as went
            from rt.owner o where o.kind = 'executor'
        ) l
        where l.came < l.went
    ) t
$$;

-- Whether the executor that set it may have it in memory, to fire it.
create function rt.is_near_v1(w rt.wait) returns bool language sql stable as $$
    select w.kind in ('s', 'b') and w.due_at <= w.created_at + interval '1 minute'
$$;

-- Fire what is due, oldest first. Deletes by id under the run's lock, so two schedulers at once are harmless. Not fired: a
-- wait that still looks back, as its event may have come long ago (but that is not waited for without end); the park of a run
-- whose worker had no executor to come to for as long; and waits of a run whose own time is over, which expire_v1 ends: its
-- function does not get to see a timeout that was capped at the run's.
-- An executor fires the sleeps and backoffs of the next minute that it set: p_grace_ms after their time they are anybody's.
-- Answers one row: how many waits went, whether due ones were left (the batch is full, or another transaction holds their
-- runs), and the runs that got something, with their owner (null: nobody, ready to be claimed) and gates; of each its tenant
-- and, with p_traced, what was resolved (see deliver_v1). `lost` are those whose worker has not come back in time, `ended` those
-- of them that have no attempt left.
create function rt.fire_v1(p_parts smallint[], p_limit int, p_traced bool default false, p_grace_ms int default 0)
returns table (fired int, more bool, runs uuid[], owners bigint[], ga bigint[], gb bigint[], tenants int[], resolved text[],
               lost uuid[], ended uuid[], late_ms int[]) language plpgsql as $$
#variable_conflict use_column
declare
    v_due uuid[]; v_wait uuid[]; v_status text[]; v_error text[];
    v_full bool;
    v_look constant int := p_limit + 100;
    v_each constant int := greatest(50, 2 * v_look / greatest(1, cardinality(p_parts)));
    v_now timestamptz := rt.now();   -- a variable: a volatile function in a condition keeps it from the index
    v_patience timestamptz := v_now - interval '30 seconds';
    v_own timestamptz := v_now - p_grace_ms * interval '1 millisecond';
    v_there timestamptz := (select min(o.boot_at) from rt.owner o where o.kind = 'executor' and not o.dead);
begin
    fired := 0; more := false; runs := '{}'; owners := '{}'; ga := '{}'; gb := '{}'; tenants := '{}'; resolved := '{}';
    lost := '{}'; ended := '{}'; late_ms := '{}';
    -- A share of the batch from each partition, so that a mass of due timers is read by the batch and not as a whole for each
    -- batch. A few more than the limit are looked at: some runs may be held by others.
    with o as materialized (
        select o.* from unnest(p_parts) p(n) cross join lateral (
            select w.id, w.due_at, row_number() over (order by w.due_at) as place
            from rt.wait w where w.part = p.n and w.due_at <= v_now and (not w.arming or w.looked_at <= v_patience)
                and (w.due_at <= v_own or not rt.is_near_v1(w))
                -- A run is kept for its worker until executors to come to have been there for as long.
                and case when w.kind <> 'p' or v_there <= v_now - (w.due_at - w.created_at) then true
                         else rt.executors_there_v1(w.created_at, v_now) >= w.due_at - w.created_at end
            order by w.due_at limit v_each
        ) o
    )
    select (select array_agg(d.id) from (select o.id from o order by o.due_at limit v_look) d),
           exists (select from o where o.place = v_each)
        into v_due, v_full;
    if v_due is null then return next; return; end if;
    select array_agg(l.id), array_agg(l.status), array_agg(l.error), coalesce(array_agg(l.late) filter (where l.kind <> 'p'), '{}')
        into v_wait, v_status, v_error, late_ms from (
        select w.id, w.kind, least(extract(epoch from v_now - w.due_at) * 1000, 2147483647)::int as late,
               (case when w.kind = 'c' then 'f' else 'c' end) as status,
               case when w.kind = 'c' then '{"name":"InvokeTimeout","message":"the invoked workflow did not end within the timeout of the step"}' end as error
        from (select w.* from rt.wait w where w.id = any (v_due) order by w.due_at) w
        cross join lateral (select from rt.live r where r.id = w.run and r.deadline > v_now for no key update skip locked) r
        limit p_limit
    ) l;
    if v_wait is not null then
        fired := cardinality(v_wait);
        lost := array(select w.run from rt.wait w cross join lateral (select r.st from rt.live r where r.id = w.run offset 0) r
                      where w.id = any (v_wait) and w.kind = 'p' and r.st = 'p');
        select coalesce(array_agg(x.run), '{}'), coalesce(array_agg(x.owner), '{}'), coalesce(array_agg(x.ga), '{}'),
               coalesce(array_agg(x.gb), '{}'), coalesce(array_agg(x.tenant), '{}'), coalesce(array_agg(x.resolved), '{}')
            into runs, owners, ga, gb, tenants, resolved
            from rt.deliver_v1(v_wait, v_status, array_fill(null::text, array[fired]), v_error, array_fill(null::uuid, array[fired]),
                               p_traced) x;
        if cardinality(lost) > 0 then
            select coalesce(array_agg(x.run), '{}'), fire_v1.ga || array_agg(x.ga), fire_v1.gb || array_agg(x.gb)
                into ended, ga, gb from rt.lost_v1(lost, 0) x;
        end if;
    end if;
    more := v_full or exists (select from rt.wait w where w.id = any (v_due));
    return next;
end $$;

-- The timer horizon that a scheduler keeps in memory: when something will be due, and in which partition, in milliseconds
-- rounded up. The same instant counts once, so a million timers of one instant are few rows. Left out are those that an executor
-- fires: of one that it does not keep a scheduler is told, and what dies with an executor is found by the pass over everything.
create function rt.upcoming_v1(p_parts smallint[], p_until_ms bigint, p_limit int)
returns table (part smallint, due_ms bigint) language sql stable as $$
    select distinct w.part, ceil(extract(epoch from w.due_at) * 1000)::bigint as due_ms from rt.wait w
    where w.part = any (p_parts) and w.due_at > rt.now() and w.due_at <= to_timestamp(p_until_ms / 1000.0) and not rt.is_near_v1(w)
    order by due_ms limit p_limit
$$;

-- End runs whose own time is over.
create function rt.expire_v1(p_limit int) returns table (run uuid, tenant int, owner bigint, ga bigint, gb bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_run uuid[];
    v_now timestamptz := rt.now();   -- a variable: a volatile function in a condition keeps it from the index
begin
    select coalesce(array_agg(l.id), '{}') into v_run from (
        select r.id from rt.live r where r.deadline <= v_now order by r.deadline limit p_limit for no key update skip locked
    ) l;
    if cardinality(v_run) = 0 then return; end if;
    return query select * from rt.finish_v1(
        v_run, array_fill('timed_out'::text, array[cardinality(v_run)]), array_fill(null::text, array[cardinality(v_run)]),
        array_fill('{"name":"RunTimeout","message":"the run did not end within its timeout"}'::text, array[cardinality(v_run)]), true);
end $$;

-- All owners that count as alive: how often each has beaten, and for how long it has been silent by this clock, which whoever
-- asks holds against its own. At least one row, for what it says of the server: when this began (or lost all its sessions with
-- a backend that crashed, when its checkpointer is new), and how long that is ago.
create function rt.owners_v1()
returns table (server timestamptz, server_ms bigint, id bigint, beats bigint, silent_ms bigint) language sql stable as $$
    select up.at, rt.ms(clock_timestamp()) - rt.ms(up.at), o.id, o.beats, rt.ms(rt.now()) - rt.ms(o.beat_at)
    from (select coalesce(max(a.backend_start), pg_postmaster_start_time()) as at
          from pg_stat_activity a where a.backend_type = 'checkpointer') up
    left join rt.owner o on not o.dead
$$;

-- Declare an owner dead, unless it has beaten since it was looked at: a process that came back first stays alive.
create function rt.bury_v1(p_owner bigint, p_beats bigint) returns bool language sql as $$
    update rt.owner set dead = true where id = p_owner and not dead and beats = p_beats returning true
$$;

-- Declare the owners dead that were in these processes, which whoever started them has seen end: they need no silence. How many.
create function rt.bury_processes_v1(p_process uuid[]) returns int language sql as $$
    with b as (update rt.owner set dead = true where process = any (p_process) and not dead returning id)
    select count(*)::int from b
$$;

-- The executions of these locked runs are lost: each a failed function attempt, after which the run is in the queue, or ends with
-- the last, since it was leased. Answers those that have ended. A slot is kept: the same run is next, so distinct runs never exceed a limit.
create function rt.lost_v1(p_run uuid[], p_bump int) returns table (run uuid, ga bigint, gb bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_last uuid[];
    v_now timestamptz := rt.now();
    v_error constant text := '{"name":"WorkerLost","message":"the engine process that ran this step disappeared"}';
begin
    insert into rt.attempts (tenant, run, n, sid, k, error, t0, t1)
        select r.tenant, r.id, r.att, null, r.fn_att + 1, v_error, coalesce(r.taken, v_now), v_now from rt.live r where r.id = any (p_run)
        on conflict do nothing;
    update rt.live r set epoch = r.epoch + p_bump, owner = null, st = rt.ready_st(r.ga, r.slot), qk = rt.queue_key(r.prio),
                         fn_att = r.fn_att + 1, att = r.att + 1
        where r.id = any (p_run);
    select coalesce(array_agg(r.id), '{}') into v_last from rt.live r where r.id = any (p_run) and r.fn_att >= r.max_att;
    if cardinality(v_last) > 0 then
        return query select f.run, f.ga, f.gb
            from rt.finish_v1(v_last, array_fill('failed'::text, array[cardinality(v_last)]),
                              array_fill(null::text, array[cardinality(v_last)]), array_fill(v_error, array[cardinality(v_last)]), true) f;
    end if;
end $$;

-- Keep these locked runs for the workers that execute them (`affinity`), if they come within p_park_ms: else they are lost. Without
-- it that is twice the longest pause that a worker of ours makes between attempts to connect. The slot is kept. Answers when each
-- is due, in milliseconds.
create function rt.park_v1(p_run uuid[], p_park_ms bigint) returns table (run uuid, due_ms bigint) language sql as $$
    with p as (
        update rt.live r set st = 'p', owner = null, epoch = r.epoch + 1 where r.id = any (p_run)
        returning r.id, r.tenant, least(r.deadline, rt.now() + coalesce(p_park_ms, 10000) * interval '1 millisecond') as due_at
    ), w as (
        insert into rt.wait (id, run, tenant, kind, due_at) select gen_random_uuid(), p.id, p.tenant, 'p', p.due_at from p
    )
    select p.id, ceil(extract(epoch from p.due_at) * 1000)::bigint from p
$$;

-- Runs held by owners that are dead or absent: one that a worker executes over its stream is kept for that worker for a moment,
-- any other is lost. `due_ms`: until when it is kept; null for one that is not.
create function rt.rescue_v1(p_limit int, p_park_ms bigint default null)
returns table (run uuid, tenant int, ended bool, due_ms bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_all uuid[]; v_tenant int[]; v_parked uuid[]; v_due bigint[]; v_lost uuid[];
begin
    select coalesce(array_agg(l.id), '{}') into v_all from (
        select r.id from rt.live r
        where r.owner is not null and not exists (select from rt.owner o where o.id = r.owner and not o.dead)
        limit p_limit for no key update skip locked
    ) l;
    -- Looked at again under the locks: while the statement above ran, another may have rescued a run and a living owner,
    -- which that statement's snapshot does not know, have claimed it.
    select coalesce(array_agg(r.id), '{}'), array_agg(r.tenant) into v_all, v_tenant from rt.live r
        where r.id = any (v_all) and r.owner is not null
          and not exists (select from rt.owner o where o.id = r.owner and not o.dead);
    if cardinality(v_all) = 0 then return; end if;
    v_parked := array(select r.id from rt.live r where r.id = any (v_all) and r.affinity is not null);
    v_lost := array(select u.id from unnest(v_all) u(id) where u.id <> all (v_parked));
    if cardinality(v_parked) > 0 then
        select array_agg(p.run), array_agg(p.due_ms) into v_parked, v_due from rt.park_v1(v_parked, p_park_ms) p;
    end if;
    perform rt.lost_v1(v_lost, 1);
    return query select u.id, u.tenant, not exists (select from rt.live r where r.id = u.id offset 0), p.due_ms
        from unnest(v_all, v_tenant) u(id, tenant) left join unnest(v_parked, v_due) p(id, due_ms) on p.id = u.id;
end $$;

-- Apply marks about children: an ended child resumes its waiting parent, an ended parent cancels its active children, and a
-- run that waits for itself, through whomever, does so no longer.
-- p_traced asks also for what was resolved (see deliver_v1).
create function rt.apply_marks_v1(p_min_age_ms bigint, p_limit int, p_traced bool default false)
returns table (run uuid, tenant int, owner bigint, ga bigint, gb bigint, cancelled bool, resolved text) language plpgsql as $$
#variable_conflict use_column
declare
    v_mark bigint[]; v_wait uuid[]; v_status text[]; v_output text[]; v_error text[]; v_child uuid[]; v_ended uuid[]; v_alive uuid[];
    v_row record; v_circle bool; v_doubted bigint[] := '{}';
begin
    -- Marks whose target is locked by another are left for the next pass.
    select coalesce(array_agg(k.id), '{}') into v_mark from (
        select m.id from rt.mark m
        where m.kind in ('child_end', 'cancel_children') and m.created_at <= rt.now() - p_min_age_ms * interval '1 millisecond'
        order by m.id limit p_limit for update skip locked
    ) k;
    if cardinality(v_mark) = 0 then return; end if;
    v_ended := array(select m.body::uuid from rt.mark m where m.id = any (v_mark) and m.kind = 'child_end');
    select coalesce(array_agg(d.wait), '{}'), array_agg(d.status), array_agg(d.output), array_agg(d.error)
        into v_wait, v_status, v_output, v_error from (
        select e.id as wait,
               (case when e.status = 'completed' then 'c' else 'f' end) as status,
               case when e.status = 'completed' then coalesce(e.output, 'null') end as output,
               case when e.status <> 'completed' then
                   json_build_object('name', 'InvokeError',
                       'message', 'the invoked run ' || e.status || coalesce(': ' || rt.error_message(e.error), ''))::text end as error
        from (
            select w.id, w.run, e.status, e.output, e.error
            from rt.wait w cross join lateral (
                select e.status, e.output, e.error from rt.ends e where e.tenant = w.tenant and e.run = w.child offset 0
            ) e
            where w.child = any (v_ended) and w.kind = 'c' offset 0
        ) e cross join lateral (select from rt.live r where r.id = e.run for no key update skip locked) r
    ) d;
    if cardinality(v_wait) > 0 then
        return query
            select x.run, x.tenant, x.owner, x.ga, x.gb, false, x.resolved
            from rt.deliver_v1(v_wait, v_status, v_output, v_error, array_fill(null::uuid, array[cardinality(v_wait)]), p_traced) x;
    end if;
    -- What is left waits for a child that is active. Where idempotency has led an invoke to a run that waits for the invoking
    -- one, neither would ever go on: the step fails. One after the other, as the first may have been in the way of the next.
    for v_row in
        select m.id as mark, w.id, w.run, w.child from rt.mark m
        cross join lateral (
            select w.id, w.run, w.child from rt.wait w where w.run = m.target and w.kind = 'c' and w.child = m.body::uuid offset 0
        ) w
        where m.id = any (v_mark) and m.kind = 'child_end' order by m.id
    loop
        v_circle := null;
        perform from rt.live r where r.id = v_row.run for no key update skip locked;
        if found then
            v_circle := rt.waits_for_v1(v_row.child, v_row.run);
        end if;
        if v_circle is null then
            v_doubted := v_doubted || v_row.mark;
        elsif v_circle then
            return query
                select x.run, x.tenant, x.owner, x.ga, null::bigint, false, x.resolved
                from rt.deliver_v1(array[v_row.id], array['f'], array[null::text], array[json_build_object('name', 'InvokeError',
                    'message', 'the idempotency key of the invoked workflow leads to '
                        || case when v_row.child = v_row.run then 'this run itself' else 'a run that waits for this one' end
                        || ': neither could ever go on')::text], array[null::uuid], p_traced) x;
        end if;
    end loop;
    select coalesce(array_agg(l.id), '{}') into v_child from (
        select c.id from rt.live c
        where c.id = any (array(
            select k.child from rt.mark m cross join lateral unnest(string_to_array(m.body, ',')::uuid[]) k(child)
            cross join lateral (select from rt.live i where i.id = k.child and i.parent = m.target offset 0) i
            where m.id = any (v_mark) and m.kind = 'cancel_children'))
        order by c.id for no key update skip locked
    ) l;
    -- Looked at under the locks: a parent that was retried meanwhile may have found such a child again, by idempotency. That one
    -- is of its new life.
    v_child := array(select c.id from rt.live c where c.id = any (v_child)
        and not exists (select from rt.wait w where w.child = c.id and w.run = c.parent offset 0));
    if cardinality(v_child) > 0 then
        return query
            select f.run, f.tenant, f.owner, f.ga, f.gb, true, null::text
            from rt.finish_v1(v_child, array_fill('cancelled'::text, array[cardinality(v_child)]),
                              array_fill(null::text, array[cardinality(v_child)]), array_fill(null::text, array[cardinality(v_child)]), true) f;
    end if;
    -- A child that is active and whose row nobody holds has not ended, and its end will see the wait: the mark, written while
    -- that could not be known (its row was locked), has nothing to do. It must not stand in the way of others until the end.
    v_alive := array(select r.id from rt.live r where r.id = any (v_ended) for share skip locked);
    -- A mark is done when nothing is left that it could still do.
    delete from rt.mark m where m.id = any (v_mark)
        and not (m.kind = 'child_end' and (m.body::uuid <> all (v_alive) or m.id = any (v_doubted))
                 and exists (select from rt.wait w where w.child = m.body::uuid offset 0))
        and not (m.kind = 'cancel_children' and exists (
            select from unnest(string_to_array(m.body, ',')::uuid[]) k(child)
            cross join lateral (select from rt.live c where c.id = k.child and c.parent = m.target offset 0) c
            where not exists (select from rt.wait w where w.child = k.child and w.run = m.target offset 0) offset 0));
end $$;

-- Runs that wait in the queue longer than p_age_ms: their hint was lost, or nobody had room. Those that only workers serve are
-- left to the looks of who has one. Each tenant its share of the
-- answer, by the queue's index: a long backlog is not read as a whole. The priority is no time waited.
create function rt.stale_queued_v1(p_age_ms bigint, p_limit int) returns setof uuid language sql stable as $$
    with t as materialized (select x.tenant, count(*) over () as n from rt.ready_tenants_v1() x(tenant))
    select q.id from t cross join lateral (
        select r.id from rt.live r where r.tenant = t.tenant and r.st = 'q' and not r.pooled
            and r.qk + r.prio * interval '1 second' <= rt.now() - p_age_ms * interval '1 millisecond'
        order by r.qk limit greatest(1, p_limit / t.n)
    ) q limit p_limit
$$;

-- Beat, and see to it that the 64 partitions are shared evenly by the living schedulers: give back what is too much, take
-- what nobody living has. Answers the partitions of this one; null: others have declared it dead.
create function rt.share_parts_v1(p_owner bigint, p_fresh_ms bigint) returns smallint[] language plpgsql as $$
#variable_conflict use_column
declare
    v_share int;
    v_mine int;
begin
    update rt.owner set beat_at = rt.now(), beats = beats + 1 where id = p_owner and not dead;
    if not found then return null; end if;
    select 64 / count(*) + case when count(*) filter (where o.id < p_owner) < 64 % count(*) then 1 else 0 end into v_share
        from rt.owner o where o.kind = 'scheduler' and not o.dead and o.beat_at > rt.now() - p_fresh_ms * interval '1 millisecond';
    select count(*) into v_mine from rt.part p where p.owner = p_owner;
    update rt.part set owner = null, epoch = epoch + 1 where n in (
        select p.n from rt.part p where p.owner = p_owner order by p.n desc limit greatest(0, v_mine - v_share) for update skip locked);
    update rt.part set owner = p_owner, epoch = epoch + 1 where n in (
        select p.n from rt.part p where p.owner is null or not exists (
            select from rt.owner o where o.id = p.owner and not o.dead and o.beat_at > rt.now() - p_fresh_ms * interval '1 millisecond')
        order by p.n limit greatest(0, v_share - v_mine) for update skip locked);
    return array(select p.n from rt.part p where p.owner = p_owner order by p.n);
end $$;

-- Fold what commits counted into the tenants' usage: the deltas go in the transaction that adds them, so none counts twice.
-- In one order everywhere, so that two folding schedulers wait for each other and never in a circle. Answers how many went.
create function rt.fold_usage_v1(p_limit int) returns int language sql as $$
    with d as (
        delete from rt.usage_delta where id in (
            select x.id from rt.usage_delta x order by x.id limit p_limit for update skip locked)
        returning tenant, wf, day, kind, n
    ), f as (
        insert into rt.usage (tenant, wf, day, kind, n)
        select d.tenant, d.wf, d.day, d.kind, sum(d.n) from d
        -- Deltas of a tenant whose tables are gone have nowhere to go, and must not keep those of the others.
        where d.tenant = any (array(
            select t.tenant from (select distinct d.tenant from d) t
            where exists (select from pg_inherits i where i.inhparent = 'rt.usage'::regclass
                                                      and i.inhrelid = to_regclass(format('t_%s.usage', t.tenant)))))
        group by 1, 2, 3, 4 order by 1, 2, 3, 4
        on conflict (tenant, wf, day, kind) do update set n = rt.usage.n + excluded.n
    )
    select count(*)::int from d
$$;

-- Paths behind (p_tenant, p_name_h, p_path), in order: which are idle, no wait being open on them, and are marked so.
create function rt.idle_paths_v1(p_tenant int, p_name_h bigint, p_path text, p_limit int)
returns table (tenant int, name_h bigint, path text, idle bool) language plpgsql as $$
#variable_conflict use_column
declare
    v_path record;
begin
    for v_path in
        select p.*, not exists (select from rt.wait w where w.tenant = p.tenant and w.name_h = p.name_h and w.path_h = p.path_h
                                and w.kind in ('e', 'x') offset 0) as unused
        from rt.wait_path p where (p.tenant, p.name_h, p.path) > (p_tenant, p_name_h, p_path)
        order by p.tenant, p.name_h, p.path limit p_limit
    loop
        tenant := v_path.tenant; name_h := v_path.name_h; path := v_path.path; idle := v_path.unused;
        if idle and not v_path.idle then
            perform from rt.wait_path p where p.tenant = v_path.tenant and p.name_h = v_path.name_h and p.path = v_path.path
                for update skip locked;
            if found then
                update rt.wait_path p set idle = true
                    where p.tenant = v_path.tenant and p.name_h = v_path.name_h and p.path = v_path.path;
            end if;
        end if;
        return next;
    end loop;
end $$;

-- Forget idle paths, when all who may not have seen them idle have ended. Answers how many.
create function rt.forget_paths_v1(p_tenant int[], p_name_h bigint[], p_path text[]) returns int language plpgsql as $$
#variable_conflict use_column
declare
    v_path record;
    v_count int := 0;
begin
    for v_path in select * from unnest(p_tenant, p_name_h, p_path) u(tenant, name_h, path) loop
        perform from rt.wait_path p
            where p.tenant = v_path.tenant and p.name_h = v_path.name_h and p.path = v_path.path and p.idle
            for update skip locked;
        continue when not found;
        delete from rt.wait_path p
            where p.tenant = v_path.tenant and p.name_h = v_path.name_h and p.path = v_path.path and p.idle
              and not exists (select from rt.wait w where w.tenant = p.tenant and w.name_h = p.name_h and w.path_h = p.path_h
                              and w.kind in ('e', 'x') offset 0);
        if found then v_count := v_count + 1; end if;
    end loop;
    return v_count;
end $$;
