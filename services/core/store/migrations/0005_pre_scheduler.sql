-- What time does to runs: due timers, deadlines, dead owners, marks that nobody applied.

-- Fire what is due. Deletes by id under the run's lock, so two schedulers at once are harmless.
create function rt.fire_v1(p_parts smallint[], p_limit int)
returns table (run uuid, tenant int, owner bigint, ga bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_wait uuid[]; v_status text[]; v_error text[];
begin
    select coalesce(array_agg(d.id), '{}'), array_agg(d.status), array_agg(d.error) into v_wait, v_status, v_error from (
        select w.id,
               (case when w.kind = 'c' then 'f' else 'c' end) as status,
               case when w.kind = 'c' then '{"name":"InvokeTimeout","message":"the invoked workflow did not end within the timeout of the step"}' end as error
        from rt.wait w join rt.live r on r.id = w.run
        where w.part = any (p_parts) and w.due_at <= rt.now()
        order by w.due_at limit p_limit for no key update of r skip locked
    ) d;
    if cardinality(v_wait) = 0 then return; end if;
    return query
        select x.run, x.tenant, x.owner, x.ga
        from rt.deliver_v1(v_wait, v_status, array_fill(null::text, array[cardinality(v_wait)]), v_error,
                           array_fill(null::uuid, array[cardinality(v_wait)])) x;
end $$;

-- Waits of ended or unknown runs cannot exist (finish_v1 deletes them); this is the timer horizon that a scheduler keeps in memory.
create function rt.upcoming_v1(p_parts smallint[], p_until_ms bigint, p_limit int) returns table (due_ms bigint) language sql stable as $$
    select rt.ms(w.due_at) from rt.wait w
    where w.part = any (p_parts) and w.due_at <= to_timestamp(p_until_ms / 1000.0) order by w.due_at limit p_limit
$$;

-- End runs whose own time is over.
create function rt.expire_v1(p_limit int) returns table (run uuid, tenant int, owner bigint, ga bigint, gb bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_run uuid[];
begin
    select coalesce(array_agg(l.id), '{}') into v_run from (
        select r.id from rt.live r where r.deadline <= rt.now() order by r.deadline limit p_limit for no key update skip locked
    ) l;
    return query select * from rt.finish_v1(
        v_run, array_fill('timed_out'::text, array[cardinality(v_run)]), array_fill(null::text, array[cardinality(v_run)]),
        array_fill('{"name":"RunTimeout","message":"the run did not end within its timeout"}'::text, array[cardinality(v_run)]), true);
end $$;

-- Owners to look at: silent past the ttl, or silent past a short while (then only a free advisory lock proves the death).
create function rt.suspects_v1(p_ttl_ms bigint, p_early_ms bigint) returns table (id bigint, expired bool) language sql stable as $$
    select o.id, o.beat_at < rt.now() - p_ttl_ms * interval '1 millisecond'
    from rt.owner o where not o.dead and o.beat_at < rt.now() - p_early_ms * interval '1 millisecond'
$$;

-- Declare an owner dead, again checking its beat: a process that came back first stays alive.
create function rt.bury_v1(p_owner bigint, p_silent_ms bigint) returns bool language sql as $$
    update rt.owner set dead = true
    where id = p_owner and not dead and beat_at < rt.now() - p_silent_ms * interval '1 millisecond' returning true
$$;

-- Runs held by owners that are dead or absent go back to the queue as a failed function attempt, or end at the last.
-- A slot is kept: the same run is next, so distinct runs never exceed a limit.
create function rt.rescue_v1(p_limit int) returns table (run uuid, tenant int, ended bool) language plpgsql as $$
#variable_conflict use_column
declare
    v_all uuid[]; v_last uuid[];
    v_error constant text := '{"name":"WorkerLost","message":"the engine process that ran this step disappeared"}';
begin
    select coalesce(array_agg(l.id), '{}') into v_all from (
        select r.id from rt.live r
        where r.owner is not null and not exists (select from rt.owner o where o.id = r.owner and not o.dead)
        limit p_limit for no key update skip locked
    ) l;
    if cardinality(v_all) = 0 then return; end if;
    insert into rt.attempts (tenant, run, n, sid, k, error, t0, t1)
        select r.tenant, r.id, r.att, null, r.fn_att + 1, v_error, rt.now(), rt.now() from rt.live r where r.id = any (v_all)
        on conflict do nothing;
    update rt.live r set epoch = r.epoch + 1, owner = null, st = rt.ready_st(r.ga, r.slot), qk = rt.queue_key(r.prio),
                         fn_att = r.fn_att + 1, att = r.att + 1
        where r.id = any (v_all);
    select coalesce(array_agg(r.id), '{}') into v_last from rt.live r where r.id = any (v_all) and r.fn_att >= r.max_att;
    perform from rt.finish_v1(v_last, array_fill('failed'::text, array[cardinality(v_last)]),
                              array_fill(null::text, array[cardinality(v_last)]), array_fill(v_error, array[cardinality(v_last)]), true);
    return query select u.id, r.tenant, r.id is null from unnest(v_all) u(id) left join rt.live r on r.id = u.id;
end $$;

-- Apply marks about children: an ended child resumes its waiting parent, an ended parent cancels its active children.
create function rt.apply_marks_v1(p_min_age_ms bigint, p_limit int)
returns table (run uuid, tenant int, owner bigint, cancelled bool) language plpgsql as $$
#variable_conflict use_column
declare
    v_mark bigint[]; v_wait uuid[]; v_status text[]; v_output text[]; v_error text[]; v_child uuid[];
begin
    -- Marks whose target is locked by another are left for the next pass.
    select coalesce(array_agg(k.id), '{}') into v_mark from (
        select m.id from rt.mark m
        where m.kind in ('child_end', 'cancel_children') and m.created_at <= rt.now() - p_min_age_ms * interval '1 millisecond'
        order by m.id limit p_limit for update skip locked
    ) k;
    if cardinality(v_mark) = 0 then return; end if;
    select coalesce(array_agg(d.wait), '{}'), array_agg(d.status), array_agg(d.output), array_agg(d.error)
        into v_wait, v_status, v_output, v_error from (
        select w.id as wait,
               (case when e.status = 'completed' then 'c' else 'f' end) as status,
               case when e.status = 'completed' then coalesce(e.output, 'null') end as output,
               case when e.status <> 'completed' then
                   json_build_object('name', 'InvokeError',
                       'message', 'the invoked run ' || e.status || coalesce(': ' || rt.error_message(e.error), ''))::text end as error
        from rt.mark m
        join rt.wait w on w.child = m.body::uuid and w.kind = 'c'
        join rt.live r on r.id = w.run
        join rt.ends e on e.tenant = m.tenant and e.run = m.body::uuid
        where m.id = any (v_mark) and m.kind = 'child_end'
        for no key update of r skip locked
    ) d;
    if cardinality(v_wait) > 0 then
        return query
            select x.run, x.tenant, x.owner, false
            from rt.deliver_v1(v_wait, v_status, v_output, v_error, array_fill(null::uuid, array[cardinality(v_wait)])) x;
    end if;
    select coalesce(array_agg(l.id), '{}') into v_child from (
        select c.id from rt.mark m cross join lateral unnest(string_to_array(m.body, ',')::uuid[]) k(child)
        join rt.live c on c.id = k.child and c.parent = m.target
        where m.id = any (v_mark) and m.kind = 'cancel_children' order by c.id for no key update of c skip locked
    ) l;
    if cardinality(v_child) > 0 then
        return query
            select f.run, f.tenant, f.owner, true
            from rt.finish_v1(v_child, array_fill('cancelled'::text, array[cardinality(v_child)]),
                              array_fill(null::text, array[cardinality(v_child)]), array_fill(null::text, array[cardinality(v_child)]), true) f;
    end if;
    -- A mark is done when nothing is left that it could still do.
    delete from rt.mark m where m.id = any (v_mark)
        and not (m.kind = 'child_end' and exists (select from rt.wait w where w.child = m.body::uuid))
        and not (m.kind = 'cancel_children' and exists (
            select from unnest(string_to_array(m.body, ',')::uuid[]) k(child) join rt.live c on c.id = k.child and c.parent = m.target));
end $$;

-- Runs that wait in the queue longer than p_age_ms: their hint was lost, or nobody had room.
create function rt.stale_queued_v1(p_age_ms bigint, p_limit int) returns setof uuid language sql stable as $$
    select r.id from rt.live r where r.st = 'q' and r.qk <= rt.now() - p_age_ms * interval '1 millisecond' order by r.qk limit p_limit
$$;
