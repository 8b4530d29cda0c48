-- The doors of what is asked from outside, many requests at a time: starts over the API, and events.

-- A column of n rows that came as one value where all are the same. The ids come whole: they say how many rows there are.
create function rt.spread(p anyarray, p_n int) returns anyarray language sql immutable parallel safe as
$$ select case when cardinality(p) = p_n then p else array_fill(p[1], array[p_n]) end $$;

-- The start of many runs at once, of any tenants, that were asked for under these versions of their tenants' definitions. Nothing
-- and no row when one of those has moved. p_lock_ms: how long to wait for others who start or accept under the same keys. The
-- waits (w_…) are those of cancel_on. A column of the starts may be one value for all. Where no start has an idempotency key all are
-- new, and one row (ord null) tells it of all.
create function rt.submit_v1(
    p_lock_ms int, p_defs_tenant int[], p_defs_v bigint[],
    p_id uuid[], p_tenant int[], p_wf int[], p_project int[], p_source text[],
    p_event uuid[], p_event_name text[], p_event_ts bigint[], p_event_data text[],
    p_idem text[], p_test bool[], p_parent uuid[], p_replay_of uuid[], p_tags text[], p_version text[], p_trace text[],
    p_max_att smallint[], p_timeout_ms bigint[], p_delay_ms bigint[], p_at_ms bigint[], p_prio smallint[],
    p_gv bigint[], p_ga bigint[], p_gb bigint[],
    w_run uuid[] default null, w_tenant int[] default null, w_id uuid[] default null, w_kind text[] default null,
    w_seq int[] default null, w_sid text[] default null, w_name text[] default null, w_fields text[] default null,
    w_event text[] default null, w_name_h bigint[] default null, w_path text[] default null, w_path_h bigint[] default null,
    w_val_h bigint[] default null, w_cond text[] default null, w_child uuid[] default null, w_delay_ms bigint[] default null,
    w_at_ms bigint[] default null, w_arming bool[] default null, w_lookback_ms bigint[] default null
) returns table (ord bigint, run uuid, is_new bool, created_ms bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_n constant int := cardinality(p_id);
    v_keyed constant bool := array_remove(p_idem, null) <> '{}';
    v_lock_timeout text;
    v_moved bool;
begin
    -- A deletion of a project waits for those who hold this lock, and moves the version: the lock comes before the look.
    lock table rt.live in row exclusive mode;
    select set_config('lock_timeout', p_lock_ms::text, true), exists (
            select from unnest(p_defs_tenant, p_defs_v) u(tenant, v)
            left join lateral (select d.v from rt.defs_version d where d.tenant = u.tenant offset 0) d on true
            where d.v is distinct from u.v)
        into v_lock_timeout, v_moved;
    if v_moved then return; end if;
    return query
        select case when v_keyed then s.ord end, s.run, s.is_new, s.created_ms
        from rt.start_v1(
            p_id, rt.spread(p_tenant, v_n), rt.spread(p_wf, v_n), rt.spread(p_project, v_n), rt.spread(p_source, v_n),
            rt.spread(p_event, v_n), rt.spread(p_event_name, v_n), rt.spread(p_event_ts, v_n),
            rt.spread(p_event_data, v_n), rt.spread(p_idem, v_n), rt.spread(p_test, v_n), rt.spread(p_parent, v_n),
            rt.spread(p_replay_of, v_n), rt.spread(p_tags, v_n), rt.spread(p_version, v_n), rt.spread(p_trace, v_n),
            rt.spread(p_max_att, v_n), rt.spread(p_timeout_ms, v_n), rt.spread(p_delay_ms, v_n), rt.spread(p_at_ms, v_n),
            rt.spread(p_prio, v_n), rt.spread(p_gv, v_n), rt.spread(p_ga, v_n), rt.spread(p_gb, v_n)) s
        where v_keyed or s.ord = 1;
    if w_run is not null then
        perform rt.wait_v1(
            w_run, w_tenant, w_id, w_kind, w_seq, w_sid, w_name, w_fields, w_event, w_name_h, w_path, w_path_h, w_val_h, w_cond,
            w_child, w_delay_ms, w_at_ms, w_arming, w_lookback_ms);
    end if;
end $$;

-- Register the ids of events before their waits are looked for, and tell all that is to be known for that: which ids are new, by
-- which definitions, when, along which paths, and whether anybody waits for these names. In one call, but in this order: the
-- transaction has its number before the waits are looked at, so that a look back can tell what it may have missed (rulings C8).
-- A duplicate waits here for the end of the first one, for p_lock_ms at most.
create function rt.begin_accept_v1(
    p_lock_ms int, p_tenant int, p_src text[], p_eid text[], p_event uuid[], p_accept uuid[], p_name_h bigint[],
    out new_src text[], out new_eid text[],
    out version bigint, out now_ms bigint, out name_hs bigint[], out paths text[], out path_hs bigint[], out waited bool
) language plpgsql as $$
begin
    perform set_config('lock_timeout', p_lock_ms::text, true), pg_current_xact_id();
    if cardinality(p_eid) > 0 then
        with x as (
            insert into rt.event_ids (tenant, src, eid, event, accept_id)
            select p_tenant, u.src::"char", u.eid, u.event, u.accept
            from unnest(p_src, p_eid, p_event, p_accept) u(src, eid, event, accept) order by u.src, u.eid
            on conflict do nothing returning src, eid
        )
        select array_agg(x.src::text), array_agg(x.eid) into new_src, new_eid from x;
    end if;
    select d.v into version from rt.defs_version d where d.tenant = p_tenant;
    select array_agg(p.name_h), array_agg(p.path), array_agg(p.path_h) into name_hs, paths, path_hs
        from rt.wait_path p where p.tenant = p_tenant and p.name_h = any (p_name_h);
    waited := exists (
        select from unnest(p_name_h) u(name_h) cross join lateral (
            select from rt.wait w where w.tenant = p_tenant and w.name_h = u.name_h and w.kind in ('e', 'x') limit 1 offset 0) w);
    now_ms := rt.ms(rt.now());
end $$;

-- Deliver events to waits of these runs, whose rows are locked first, in the order of their ids (rulings C11).
create function rt.lock_and_deliver_v1(
    p_tenant int, p_runs uuid[], p_wait uuid[], p_status text[], p_output text[], p_error text[], p_event uuid[], p_traced bool
) returns table (run uuid, tenant int, owner bigint, ga bigint, gb bigint, waits uuid[], resolved text) language plpgsql as $$
#variable_conflict use_column
begin
    perform from rt.live r where r.tenant = p_tenant and r.id = any (p_runs) order by r.id for no key update;
    return query select * from rt.deliver_v1(p_wait, p_status, p_output, p_error, p_event, p_traced);
end $$;

-- The same for one event and one wait for an event, untraced: what most events that resume anything come to. Three statements by
-- keys cost a third of what the set-based one does.
create function rt.deliver_event_v1(p_wait uuid, p_run uuid, p_output text, p_event uuid)
returns table (run uuid, owner bigint, ga bigint, gb bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_wait rt.wait;
begin
    perform from rt.live r where r.id = p_run for no key update;
    delete from rt.wait w where w.id = p_wait returning w.* into v_wait;
    if not found then return; end if;
    insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, error, input, event, child, att, t0, t1)
        values (v_wait.tenant, v_wait.run, v_wait.sid, v_wait.seq, coalesce(v_wait.name, v_wait.sid), 'e', 'c', p_output, null,
                v_wait.fields, p_event, null, 1, v_wait.created_at, rt.now())
        on conflict do nothing;
    return query
        update rt.live r set
            mail  = r.mail + 1,
            bytes = r.bytes + octet_length(p_output),
            st    = case when r.st in ('r', 'q', 'b', 'p') then r.st else rt.ready_st(r.ga, r.slot) end,
            qk    = case when r.st in ('r', 'q', 'b', 'p') then r.qk else rt.queue_key(r.prio) end
        where r.id = p_run returning r.id, r.owner, r.ga, r.gb;
end $$;

-- Which of these runs are stored already, and of which workflow: for starts that are asked for again under the same id.
create function rt.stored_runs_v1(p_tenant int[], p_id uuid[])
returns table (tenant int, run uuid, project text, workflow text) language plpgsql as $$
#variable_conflict use_column
declare
    v_tenant int;
begin
    for v_tenant in select distinct u.tenant from unnest(p_tenant) u(tenant) loop
        return query execute format(
            'select $2, r.id, x.project, x.workflow from t_%1$s.runs r left join lateral ('
            '    select p.slug as project, w.name as workflow from t_%1$s.workflows w join t_%1$s.projects p on p.id = w.project'
            '    where w.id = r.wf offset 0) x on true where r.id = any ($1)', v_tenant)
            using array(select u.id from unnest(p_tenant, p_id) u(tenant, id) where u.tenant = v_tenant), v_tenant;
    end loop;
end $$;

-- Store accepted events. The time in an id is when the id was made, by another clock: where that is not about now a look back is
-- told (see past_events).
create function rt.store_events_v1(
    p_tenant int, p_id uuid[], p_name text[], p_data text[], p_ts bigint[], p_event_id text[], p_source text[], p_project int[],
    p_run uuid[], p_test bool[], p_effects text[], p_trace text[], p_id_ms bigint[]
) returns void language sql as $$
    insert into rt.events (tenant, id, name, data, ts, event_id, source, project, run, test, effects, trace, odd_id)
    select p_tenant, u.id, u.name, u.data, u.ts, u.event_id, u.source, u.project, u.run, u.test, u.effects, u.trace,
           u.id_ms - n.ms not between -45000 and 4000
    from unnest(p_id, p_name, p_data, p_ts, p_event_id, p_source, p_project, p_run, p_test, p_effects, p_trace, p_id_ms)
         u(id, name, data, ts, event_id, source, project, run, test, effects, trace, id_ms),
         (select rt.ms(rt.now()) as ms) n
$$;

-- Whether events may be accepted as they were prepared: under this version of the definitions, looking along these paths of
-- their names. A path too many does no harm.
create function rt.prepared_v1(p_tenant int, p_version bigint, p_name_h bigint[], p_path_name_h bigint[], p_path text[])
returns bool language sql volatile as $$
    select exists (select from rt.defs_version d where d.tenant = p_tenant and d.v = p_version)
       and not exists (
        select from rt.wait_path p where p.tenant = p_tenant and p.name_h = any (p_name_h)
            and not exists (select from unnest(p_path_name_h, p_path) u(name_h, path) where u.name_h = p.name_h and u.path = p.path))
$$;

-- Accept events of a tenant in one call, if nothing is left to be thought about that only the caller can. Else nothing is
-- changed, and the caller does it step by step (`begin_accept_v1` and what follows), in a transaction of its own. That is so
-- for a duplicate, for other definitions or paths than were prepared for, for a wait whose condition is not just the text that is
-- offered with its key (`k_cond`, null: never; the wait has none: always), for an event that cancels, and for very many waits or
-- very much to be delivered (rulings C24).
-- The order is that of the steps (rulings C8–C11): ids first, then the waits, then the runs' rows, then the starts.
-- The keys (k_…) are different ones, each with the place (from 0) of the first event that looks under it. No start may have an
-- idempotency key. A column of the events or of the starts may be one value for all. p_now_ms is what the caller took the time to
-- be; an event is not accepted so where it was far off.
-- Answers a row that says what came of it (done; other: something is not as it was prepared for; judge: waits must be judged, of
-- events at these places), and one for each run that got something, with the places of the events that it got.
create function rt.accept_v1(
    p_lock_ms int, p_tenant int, p_version bigint, p_now_ms bigint, p_traced bool,
    i_src text[], i_eid text[], i_event uuid[], i_accept uuid[],
    p_name_h bigint[], p_path_name_h bigint[], p_path text[],
    k_place int[], k_name_h bigint[], k_path_h bigint[], k_val_h bigint[], k_cond text[],
    e_ulid text[], e_id uuid[], e_name text[], e_data text[], e_ts bigint[], e_event_id text[], e_source text[], e_project int[], e_run uuid[],
    e_test bool[], e_effects text[], e_trace text[], e_id_ms bigint[],
    r_id uuid[], r_tenant int[], r_wf int[], r_project int[], r_source text[],
    r_event uuid[], r_event_name text[], r_event_ts bigint[], r_event_data text[],
    r_idem text[], r_test bool[], r_parent uuid[], r_replay_of uuid[], r_tags text[], r_version text[], r_trace text[],
    r_max_att smallint[], r_timeout_ms bigint[], r_delay_ms bigint[], r_at_ms bigint[], r_prio smallint[],
    r_gv bigint[], r_ga bigint[], r_gb bigint[],
    w_run uuid[], w_tenant int[], w_id uuid[], w_kind text[], w_seq int[], w_sid text[], w_name text[], w_fields text[],
    w_event text[], w_name_h bigint[], w_path text[], w_path_h bigint[], w_val_h bigint[], w_cond text[],
    w_child uuid[], w_delay_ms bigint[], w_at_ms bigint[], w_arming bool[], w_lookback_ms bigint[]
) returns table (came_of text, run uuid, owner bigint, ga bigint, gb bigint, resolved text, places int[]) language plpgsql as $$
#variable_conflict use_column
declare
    v_n constant int := cardinality(e_id);
    v_runs constant int := cardinality(r_id);
    v_most constant int := 500;
    v_most_each constant int := 16;
    v_most_bytes constant int := 32 * 1024 * 1024;
    v_plain bool := true;
    v_wait uuid[]; v_run uuid[]; v_place int[]; v_status text[]; v_payload text[]; v_event uuid[];
    v_got uuid[]; v_got_place int[];
    v_at int;
    v_row record;
begin
    e_name := rt.spread(e_name, v_n);
    e_data := rt.spread(e_data, v_n);
    e_ts := rt.spread(e_ts, v_n);
    e_effects := rt.spread(e_effects, v_n);
    perform set_config('lock_timeout', p_lock_ms::text, true), pg_current_xact_id();
    if cardinality(i_eid) > 0 then
        with x as (
            insert into rt.event_ids (tenant, src, eid, event, accept_id)
            select p_tenant, u.src::"char", u.eid, u.event, u.accept
            from unnest(i_src, i_eid, i_event, i_accept) u(src, eid, event, accept) order by u.src, u.eid
            on conflict do nothing returning 1
        )
        select count(*) = cardinality(i_eid) into v_plain from x;
    end if;
    v_plain := v_plain and abs(rt.ms(rt.now()) - p_now_ms) <= 1000
        and rt.prepared_v1(p_tenant, p_version, p_name_h, p_path_name_h, p_path);
    came_of := 'other';
    if v_plain then
        came_of := 'judge';
        select array_agg(f.id), array_agg(f.run), array_agg(f.place), array_agg('c'::text),
               coalesce(bool_and(f.kind = 'e' and (f.cond is null or f.cond is not distinct from f.offered)), true) and count(*) <= v_most
            into v_wait, v_run, v_place, v_status, v_plain
            from (select w.*, k.place, k.cond as offered
                  from unnest(k_place, k_name_h, k_path_h, k_val_h, k_cond) k(place, name_h, path_h, val_h, cond)
                  cross join lateral (
                      select w.id, w.run, w.kind, w.cond, w.event, w.due_at from rt.wait w
                      where w.tenant = p_tenant and w.name_h = k.name_h and w.path_h = k.path_h and w.val_h = k.val_h
                          and w.kind in ('e', 'x')
                      limit v_most + 1 offset 0
                  ) w
                  where w.event = e_name[k.place + 1] and (w.kind = 'e' or w.due_at is null or w.due_at > rt.now())
                  limit v_most + 1) f;
    end if;
    if cardinality(v_wait) > 1 and v_plain then
        v_plain := not exists (select from unnest(v_place) p(place) group by p.place having count(*) > v_most_each)
            and (select sum(octet_length(e_data[p.place + 1])) from unnest(v_place) p(place)) <= v_most_bytes;
    end if;
    if not v_plain then
        if cardinality(i_eid) > 0 then
            delete from rt.event_ids i using unnest(i_src, i_eid, i_event) u(src, eid, event)
                where i.tenant = p_tenant and i.src = u.src::"char" and i.eid = u.eid and i.eid = any (i_eid) and i.event = u.event
                  and i.xmin = pg_current_xact_id()::xid;
        end if;
        places := array(select distinct p.place from unnest(v_place) p(place));
        return next;
        return;
    end if;
    came_of := 'done';
    return next;
    if cardinality(v_wait) = 1 and not p_traced then
        v_at := v_place[1] + 1;
        select d.run, d.owner, d.ga, d.gb into run, owner, ga, gb
            from rt.deliver_event_v1(v_wait[1], v_run[1], '{"id":"' || e_ulid[v_at] || '","name":' || to_json(e_name[v_at]) || ',"data":'
                                     || e_data[v_at] || ',"ts":' || e_ts[v_at] || '}', e_id[v_at]) d;
        if found then
            places := v_place;
            return next;
            e_effects[v_at] := overlay(
                e_effects[v_at] placing '"resumed": 1, "resumed_runs": ["' || run || '"]'
                from position('"resumed": 0' in e_effects[v_at]) for 12);
        end if;
    elsif v_wait is not null then
        select array_agg('{"id":"' || e_ulid[p.place + 1] || '","name":' || to_json(e_name[p.place + 1]) || ',"data":'
                         || e_data[p.place + 1] || ',"ts":' || e_ts[p.place + 1] || '}' order by p.n),
               array_agg(e_id[p.place + 1] order by p.n)
            into v_payload, v_event from unnest(v_place) with ordinality p(place, n);
        for v_row in
            select d.* from rt.lock_and_deliver_v1(
                p_tenant, v_run, v_wait, v_status, v_payload, array_fill(null::text, array[cardinality(v_wait)]), v_event, p_traced) d
        loop
            run := v_row.run; owner := v_row.owner; ga := v_row.ga; gb := v_row.gb; resolved := v_row.resolved;
            if cardinality(v_row.waits) = 1 then
                places := array[v_place[array_position(v_wait, v_row.waits[1])]];
            else
                places := array(select v_place[array_position(v_wait, w.id)] from unnest(v_row.waits) w(id));
            end if;
            v_got := v_got || array_fill(run, array[cardinality(places)]);
            v_got_place := v_got_place || places;
            return next;
        end loop;
        -- What each did, told with it. Its effects as they were prepared are those of an event that resumes nothing.
        for v_row in
            select g.place, count(*) as resumed, json_agg(distinct g.run::text)::text as runs,
                   position('"resumed": 0' in e_effects[g.place + 1]) as at
            from unnest(v_got_place, v_got) g(place, run) group by g.place
        loop
            e_effects[v_row.place + 1] := overlay(
                e_effects[v_row.place + 1] placing '"resumed": ' || v_row.resumed || ', "resumed_runs": ' || v_row.runs
                from v_row.at for 12);
        end loop;
    end if;
    if cardinality(r_id) > 0 then
        perform from rt.start_v1(
            r_id, rt.spread(r_tenant, v_runs), rt.spread(r_wf, v_runs), rt.spread(r_project, v_runs),
            rt.spread(r_source, v_runs), rt.spread(r_event, v_runs), rt.spread(r_event_name, v_runs),
            rt.spread(r_event_ts, v_runs), rt.spread(r_event_data, v_runs), rt.spread(r_idem, v_runs),
            rt.spread(r_test, v_runs), rt.spread(r_parent, v_runs), rt.spread(r_replay_of, v_runs),
            rt.spread(r_tags, v_runs), rt.spread(r_version, v_runs), rt.spread(r_trace, v_runs),
            rt.spread(r_max_att, v_runs), rt.spread(r_timeout_ms, v_runs), rt.spread(r_delay_ms, v_runs),
            rt.spread(r_at_ms, v_runs), rt.spread(r_prio, v_runs), rt.spread(r_gv, v_runs), rt.spread(r_ga, v_runs),
            rt.spread(r_gb, v_runs)) s;
    end if;
    if cardinality(w_id) > 0 then
        perform rt.wait_v1(
            w_run, w_tenant, w_id, w_kind, w_seq, w_sid, w_name, w_fields, w_event, w_name_h, w_path, w_path_h, w_val_h, w_cond,
            w_child, w_delay_ms, w_at_ms, w_arming, w_lookback_ms);
    end if;
    perform rt.store_events_v1(
        p_tenant, e_id, e_name, e_data, e_ts, rt.spread(e_event_id, v_n), rt.spread(e_source, v_n), rt.spread(e_project, v_n),
        rt.spread(e_run, v_n), rt.spread(e_test, v_n), e_effects, rt.spread(e_trace, v_n), rt.spread(e_id_ms, v_n));
end $$;
