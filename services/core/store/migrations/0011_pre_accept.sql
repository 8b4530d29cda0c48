-- The doors of what is asked from outside, many requests at a time: starts over the API, and events.

-- The start of many runs at once, of any tenants, that were asked for under these versions of their tenants' definitions. Nothing
-- and no row when one of those has moved. p_lock_ms: how long to wait for others who start or accept under the same keys. The
-- waits (w_…) are those of cancel_on.
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
begin
    -- A deletion of a project waits for those who hold this lock, and moves the version: the lock comes before the look.
    lock table rt.live in row exclusive mode;
    if exists (
        select from unnest(p_defs_tenant, p_defs_v) u(tenant, v)
        left join lateral (select d.v from rt.defs_version d where d.tenant = u.tenant offset 0) d on true
        where d.v is distinct from u.v
    ) then
        return;
    end if;
    perform set_config('lock_timeout', p_lock_ms::text, true);
    return query
        select s.ord, s.run, s.is_new, s.created_ms
        from rt.start_v1(
            p_id, p_tenant, p_wf, p_project, p_source, p_event, p_event_name, p_event_ts, p_event_data, p_idem, p_test, p_parent,
            p_replay_of, p_tags, p_version, p_trace, p_max_att, p_timeout_ms, p_delay_ms, p_at_ms, p_prio, p_gv, p_ga, p_gb) s;
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
