-- The doors through which runs change. Each is called with the runs' live rows locked, in the caller's transaction.
-- A plan is kept for as long as its connection, and may have been made while a table was empty, when reading all of it is
-- the cheapest way. So nothing is left to the planner: what is looked up by ids is asked for by `= any`, also where a join
-- says the same, or by a lateral subquery, which `offset 0` keeps apart.
-- `core/domain/transition.py` is the table they must agree with; tests/integration/test_transition_table.py compares both.

-- The message of an error as the engine stores it; null where the text is not that: one odd row must not stop a batch.
create function rt.error_message(p_error text) returns text language plpgsql immutable as $$
begin
    return p_error::json ->> 'message';
exception when others then
    return null;
end $$;

-- Where a run goes when it is ready: the queue, or the line before its concurrency gate.
create function rt.ready_st(p_ga bigint, p_slot bool) returns "char" language sql immutable parallel safe as
$$ select (case when p_ga is null or p_slot then 'q' else 'b' end)::"char" $$;

create function rt.queue_key(p_prio smallint) returns timestamptz language sql volatile as
$$ select rt.now() - p_prio * interval '1 second' $$;

-- Start runs: idempotency first, then the live row, the run's own row and its cancel_on waits.
-- Answers, in order, the run each start leads to, whether it is new, and when the new ones were created.
create function rt.start_v1(
    p_id uuid[], p_tenant int[], p_wf int[], p_project int[], p_source text[],
    p_event uuid[], p_event_name text[], p_event_ts bigint[], p_event_data text[],
    p_idem text[], p_test bool[], p_parent uuid[], p_replay_of uuid[], p_tags text[], p_version text[], p_trace text[],
    p_max_att smallint[], p_timeout_ms bigint[], p_delay_ms bigint[], p_at_ms bigint[], p_prio smallint[],
    p_gv bigint[], p_ga bigint[], p_gb bigint[],
    p_parents uuid[] default null                  -- only children of these; null: all
) returns table (ord bigint, run uuid, is_new bool, created_ms bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz;
    v_new uuid[];
    v_pools int[];
    v_deleted bool;
    v_keyed constant bool := array_remove(p_idem, null) <> '{}';
    v_all constant bool := p_parents is null and not v_keyed;    -- whether all are new
    v_later constant bool := array_remove(p_delay_ms, null) <> '{}' or array_remove(p_at_ms, null) <> '{}';
begin
    -- Nothing starts in a project that is being deleted; asked again, the caller reads that it is archived. A deletion waits for
    -- those who hold this lock, so it is taken before the question: whoever was told too early is waited for. Children need no
    -- question: until they are committed their parent is active and held, and they end as it does.
    if p_parents is null then
        lock table rt.live in row exclusive mode;
    end if;
    select array(select p.project from rt.pool p where p.project = any (p_project)),
           p_parents is null and exists (select from rt.deleted_project d where d.project = any (p_project))
        into v_pools, v_deleted;
    if v_deleted then
        raise serialization_failure using message = 'a project is being deleted';
    end if;
    while v_keyed loop
        -- Sorted, so that two batches never wait for each other in a circle; a loser waits here for the winner's end.
        insert into rt.idem (wf, key, run)
            select distinct on (s.wf, s.key) s.wf, s.key, s.id
            from unnest(p_id, p_wf, p_idem, p_parent) with ordinality s(id, wf, key, parent, n)
            where s.key is not null and (p_parents is null or s.parent = any (p_parents))
            order by s.wf, s.key, s.n
            on conflict do nothing;
        -- Keys of earlier runs are held, so that retention cannot take such a run from under us; those that it has just taken
        -- are free.
        perform from unnest(p_id, p_wf, p_idem) s(id, wf, key) join rt.idem i on i.wf = s.wf and i.key = s.key and i.run <> s.id
            order by i.wf, i.key for key share of i;
        exit when not exists (
            select from unnest(p_wf, p_idem, p_parent) s(wf, key, parent)
            where s.key is not null and (p_parents is null or s.parent = any (p_parents))
              and not exists (select from rt.idem i where i.wf = s.wf and i.key = s.key));
    end loop;
    if v_all then
        v_new := p_id;
    else
        select coalesce(array_agg(s.id), '{}') into v_new
            from unnest(p_id, p_wf, p_idem, p_parent) s(id, wf, key, parent)
            where (p_parents is null or s.parent = any (p_parents))
              and (s.key is null or exists (select from rt.idem i where i.wf = s.wf and i.key = s.key and i.run = s.id offset 0));
    end if;
    v_now := rt.now();
    insert into rt.live (id, tenant, wf, st, prio, qk, gv, ga, gb, max_att, parent, deadline, pooled)
        select s.id, s.tenant, s.wf,
               case when s.due > v_now then 'd' else rt.ready_st(s.ga, false) end,
               s.prio,
               case when s.due > v_now then null else v_now - s.prio * interval '1 second' end,
               s.gv, s.ga, s.gb, s.max_att, s.parent, greatest(s.due, v_now) + s.timeout_ms * interval '1 millisecond',
               s.project = any (v_pools)
        from (select u.*, case when u.at_ms is not null then to_timestamp(u.at_ms / 1000.0)
                               else v_now + coalesce(u.delay_ms, 0) * interval '1 millisecond' end as due
              from unnest(p_id, p_tenant, p_wf, p_project, p_prio, p_gv, p_ga, p_gb, p_max_att, p_parent, p_timeout_ms, p_delay_ms, p_at_ms)
                   u(id, tenant, wf, project, prio, gv, ga, gb, max_att, parent, timeout_ms, delay_ms, at_ms)
              where v_all or u.id = any (v_new)) s
        order by s.id;
    if v_later then
        insert into rt.wait (id, run, tenant, kind, due_at)
            select gen_random_uuid(), r.id, r.tenant, 'd',
                   r.deadline - u.timeout_ms * interval '1 millisecond'
            from unnest(p_id, p_timeout_ms) u(id, timeout_ms) join rt.live r on r.id = u.id
            where r.st = 'd' and r.id = any (v_new);
    end if;
    insert into rt.runs (tenant, id, wf, project, created_at, source, event, event_name, event_ts, event_data,
                         idem, test, parent, replay_of, tags, version, trace)
        select u.tenant, u.id, u.wf, u.project, v_now, u.source, u.event, u.event_name, coalesce(u.event_ts, rt.ms(v_now)), u.event_data,
               u.idem, u.test, u.parent, u.replay_of, u.tags::jsonb, u.version, u.trace
        from unnest(p_tenant, p_id, p_wf, p_project, p_source, p_event, p_event_name, p_event_ts, p_event_data,
                    p_idem, p_test, p_parent, p_replay_of, p_tags, p_version, p_trace)
             u(tenant, id, wf, project, source, event, event_name, event_ts, event_data,
               idem, test, parent, replay_of, tags, version, trace)
        where v_all or u.id = any (v_new);
    insert into rt.usage_delta (tenant, wf, day, kind, n)
        select u.tenant, u.wf, (v_now at time zone 'UTC')::date, 'r', count(*)
        from unnest(p_id, p_tenant, p_wf) u(id, tenant, wf) where v_all or u.id = any (v_new)
        group by u.tenant, u.wf;
    if v_all then
        return query select s.n, s.id, true, rt.ms(v_now) from unnest(p_id) with ordinality s(id, n) order by s.n;
        return;
    end if;
    return query
        select s.n, coalesce(i.run, s.id), s.id = any (v_new), rt.ms(v_now)
        from unnest(p_id, p_wf, p_idem, p_parent) with ordinality s(id, wf, key, parent, n)
        left join lateral (select i.run from rt.idem i where i.wf = s.wf and i.key = s.key offset 0) i on true
        where p_parents is null or s.parent = any (p_parents)
        order by s.n;
end $$;

-- A wait to open, in the order in which it is sent. gone_ms: so much of it is over already.
create type rt.wait_row as (
    run uuid, tenant int, id uuid, kind text, seq int, sid text, name text, fields text, event text, name_h bigint, path text,
    path_h bigint, val_h bigint, cond text, child uuid, delay_ms bigint, at_ms bigint, arming bool, lookback_ms bigint, gone_ms int
);

create function rt.refuse_wait_v1(p_run uuid, p_sid text) returns bool language plpgsql as $$
begin
    raise integrity_constraint_violation using message = 'a step that has its result is to wait: ' || p_run || ' ' || p_sid;
end $$;

-- Open waits, in the order of these tenants, of which they have so many each. Conditions were specialized by the caller; paths are remembered so that an event knows where
-- to look (see paths_v1).
-- A look back goes so far back from now, -1: to when the run was created (p_whole: some do). Both are instants of the clock by which
-- events are received, never of a process.
-- A step that has its result waits no more, and starts no child: whoever asks for that has read less than there is (rulings C5).
create function rt.open_waits_v1(
    p_waits rt.wait_row[], p_tenants int[], p_counts int[], p_whole bool,
    p_runs uuid[] default null                     -- only waits of these; null: all
) returns void language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := rt.now();
    v_tenant int;
    v_from int := 0;
    v_theirs rt.wait_row[];
begin
    for v_place in 1 .. cardinality(p_tenants) loop
        v_tenant := p_tenants[v_place];
        v_theirs := p_waits[v_from + 1 : v_from + p_counts[v_place]];
        v_from := v_from + p_counts[v_place];
        insert into rt.wait (id, run, tenant, kind, seq, sid, name, fields, event, name_h, path_h, val_h, cond, child, due_at,
                             arming, since, created_at)
            select u.id, u.run, u.tenant, u.kind, u.seq, u.sid, u.name, u.fields, u.event, u.name_h,
                   case when u.path is null or k.known then u.path_h else 0 end,
                   case when u.path is null or k.known then u.val_h else 0 end, u.cond, u.child,
                   -- No timer outlives its run: the run's own deadline ends it first. A cancel_on without a timeout is no
                   -- timer; one with a timeout counts from when the run is due, as the run's own timeout does.
                   case when u.kind = 'x' and u.delay_ms is null then null
                        else least(coalesce(to_timestamp(u.at_ms / 1000.0), u.delay_ms * interval '1 millisecond' + coalesce(
                            case when u.kind = 'x' and r.st = 'd' then
                                (select d.due_at from rt.wait d where d.run = u.run and d.kind = 'd') end, u.began)), r.deadline) end,
                   u.arming,
                   case when u.lookback_ms >= 0 then v_now - least(u.lookback_ms, rt.ms(v_now)) * interval '1 millisecond' end, u.began
            from (select u.*, v_now - coalesce(u.gone_ms, 0) * interval '1 millisecond' as began from unnest(v_theirs) u) u
            cross join lateral (select r.st, r.deadline from rt.live r where r.id = u.run offset 0) r
            left join lateral (select true as known from rt.wait_path p
                               where p.tenant = u.tenant and p.name_h = u.name_h and p.path = u.path offset 0) k on true
            where u.tenant = v_tenant and (p_runs is null or u.run = any (p_runs))
                and case when exists (select from rt.steps s
                                      where s.tenant = v_tenant and s.run = u.run and s.sid = u.sid offset 0)
                         then rt.refuse_wait_v1(u.run, u.sid) else true end
            on conflict do nothing;
    end loop;
    -- Apart, so that a wait that does not look back so costs no look at the runs.
    if p_whole then
        update rt.wait w set since = c.created_at
            from unnest(p_waits) u
            cross join lateral (select c.created_at from rt.runs c where c.tenant = u.tenant and c.id = u.run offset 0) c
            where w.id = u.id and w.id = any (array(select i.id from unnest(p_waits) i)) and u.lookback_ms = -1;
    end if;
end $$;

-- Remember paths on which waits are about to be opened. An event looks at no more than 32 paths of a name: a wait on one more is
-- found by the name, as one without a path.
-- A path that is idle is forgotten once everybody who may not have seen it idle has ended (duties/paths.py). So the transaction
-- has its number before it looks which paths there are, and takes an idle one back.
create function rt.paths_v1(p_tenant int[], p_name_h bigint[], p_path text[], p_path_h bigint[]) returns void language plpgsql as $$
#variable_conflict use_column
begin
    perform pg_current_xact_id();
    if not exists (
        select from unnest(p_tenant, p_name_h, p_path) u(tenant, name_h, path)
        where u.path is not null and not exists (
            select from rt.wait_path p where p.tenant = u.tenant and p.name_h = u.name_h and p.path = u.path and not p.idle offset 0)
    ) then
        return;
    end if;
    insert into rt.wait_path (tenant, name_h, path, path_h)
        select n.tenant, n.name_h, n.path, n.path_h
        from (select u.*, p.path is not null as idle,
                     row_number() over (partition by u.tenant, u.name_h, p.path is null order by u.path) as place
              from (select distinct u.tenant, u.name_h, u.path, u.path_h
                    from unnest(p_tenant, p_name_h, p_path, p_path_h) u(tenant, name_h, path, path_h)
                    where u.path is not null) u
              left join lateral (select p.path, p.idle from rt.wait_path p
                                 where p.tenant = u.tenant and p.name_h = u.name_h and p.path = u.path offset 0) p on true
              where p.idle is distinct from false) n
        where n.idle or n.place <= 32 - (select count(*) from rt.wait_path p where p.tenant = n.tenant and p.name_h = n.name_h)
        order by n.tenant, n.name_h, n.path
        on conflict (tenant, name_h, path) do update set idle = false;
end $$;

-- The same as columns, with the paths.
create function rt.wait_v1(
    p_run uuid[], p_tenant int[], p_id uuid[], p_kind text[], p_seq int[], p_sid text[], p_name text[], p_fields text[],
    p_event text[], p_name_h bigint[], p_path text[], p_path_h bigint[], p_val_h bigint[], p_cond text[],
    p_child uuid[], p_delay_ms bigint[], p_at_ms bigint[], p_arming bool[], p_lookback_ms bigint[],
    p_runs uuid[] default null,
    p_gone_ms int[] default null
) returns void language plpgsql as $$
declare
    v_tenants int[]; v_counts int[];
begin
    perform rt.paths_v1(p_tenant, p_name_h, p_path, p_path_h);
    select coalesce(array_agg(t.tenant order by t.tenant), '{}'), array_agg(t.n order by t.tenant) into v_tenants, v_counts
        from (select u.tenant, count(*) as n from unnest(p_tenant) u(tenant) group by u.tenant) t;
    perform rt.open_waits_v1(
        array(select u::rt.wait_row from unnest(
            p_run, p_tenant, p_id, p_kind, p_seq, p_sid, p_name, p_fields, p_event, p_name_h, p_path, p_path_h, p_val_h,
            p_cond, p_child, p_delay_ms, p_at_ms, p_arming, p_lookback_ms, p_gone_ms) u(run, tenant) order by u.tenant),
        v_tenants, v_counts, -1 = any (p_lookback_ms), p_runs);
end $$;

-- The hash under which waits for the event of such an end are found; `domain.matching.name_hash` of its name.
create function rt.run_event_hash(p_status text) returns bigint language sql immutable parallel safe as $$
    select case p_status when 'completed' then -991737743410756256 when 'failed' then 2168381310529891003
                         when 'cancelled' then -8449535088839493181 when 'timed_out' then -4286591803310868549 end
$$;

-- End runs: terminal row, no lease, no wait, no slot; what must follow elsewhere is left as marks.
-- p_bump: the caller is not the holder, so the epoch moves and the holder's late answer finds itself fenced. Of a holder's commit that
-- ends them: what it adds to steps, bytes, uses and attempts.
create function rt.finish_v1(p_run uuid[], p_status text[], p_output text[], p_error text[], p_bump bool,
    p_steps int[] default null, p_bytes int[] default null, p_uses int[] default null, p_att int[] default null)
returns table (run uuid, tenant int, owner bigint, ga bigint, gb bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_open bool; v_awaited bool; v_heard bool;
begin
    -- Most runs end with nothing open, waited for and heard by nobody: to look for that costs less than to write nothing. Platform
    -- events are written only where something listens.
    select exists (select from rt.wait w where w.run = any (p_run)),
           exists (select from rt.wait w where w.child = any (p_run)),
           exists (
               select from (select distinct r.tenant from rt.live r where r.id = any (p_run)) t,
                           (select distinct s.status from unnest(p_status) s(status)) u
               where exists (select from rt.defs_version d where d.tenant = t.tenant and u.status = any (d.hears) offset 0)
                  or exists (select from rt.wait w
                             where w.tenant = t.tenant and w.name_h = rt.run_event_hash(u.status) and w.kind in ('e', 'x') offset 0))
        into v_open, v_awaited, v_heard;
    if v_open then
        insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, error, input, event, child, att, t0, t1)
            select w.tenant, w.run, w.sid, w.seq, coalesce(w.name, w.sid),
                   case w.kind when 's' then 's' when 'e' then 'e' when 'c' then 'i' else 'r' end,
                   'x', null, null, w.fields, null, w.child, 1, w.created_at, rt.now()
            from rt.wait w where w.run = any (p_run) and w.kind in ('s', 'e', 'c', 'b')
            on conflict do nothing;
        delete from rt.wait w where w.run = any (p_run);
    end if;
    if p_status && array['cancelled', 'timed_out'] then
        -- The children of this life of the run, by name: a later retry's children are not its business.
        insert into rt.mark (tenant, target, kind, body)
            select r.tenant, r.id, 'cancel_children', string_agg(c.id::text, ',')
            from unnest(p_run, p_status) u(run, status)
            cross join lateral (select r.tenant, r.id from rt.live r where r.id = u.run offset 0) r
            cross join lateral (select c.id from rt.live c where c.parent = r.id offset 0) c
            where u.status in ('cancelled', 'timed_out') group by r.tenant, r.id;
    end if;
    if v_awaited then
        -- Who waits for the run need not be its parent: idempotency leads an invoke to a run that was started by another.
        insert into rt.mark (tenant, target, kind, body)
            select distinct r.tenant, w.run, 'child_end', r.id::text
            from rt.live r cross join lateral (select w.run from rt.wait w where w.child = r.id offset 0) w
            where r.id = any (p_run);
    end if;
    if v_heard then
        insert into rt.mark (tenant, target, kind, body)
            select r.tenant, r.id, 'run_event',
                   u.status || '/' || (r.epoch + case when p_bump then 1 else 0 end) || '/' || rt.ms(rt.now())
            from unnest(p_run, p_status) u(run, status)
            cross join lateral (select r.tenant, r.id, r.epoch from rt.live r where r.id = u.run offset 0) r
            where exists (select from rt.defs_version d where d.tenant = r.tenant and u.status = any (d.hears) offset 0)
               or exists (select from rt.wait w
                          where w.tenant = r.tenant and w.name_h = rt.run_event_hash(u.status) and w.kind in ('e', 'x') offset 0);
    end if;
    return query
        with r as (
            delete from rt.live r where r.id = any (p_run) returning r.*, array_position(p_run, r.id) as n
        ), d as (
            select r.*, p_status[r.n] as status, p_output[r.n] as output, p_error[r.n] as error,
                   r.steps + coalesce(p_steps[r.n], 0) as all_steps, r.bytes + coalesce(p_bytes[r.n], 0) as all_bytes,
                   r.uses + coalesce(p_uses[r.n], 0) as all_uses, r.att + coalesce(p_att[r.n], 0) as all_att
            from r
        ), e as (
            insert into rt.ends (tenant, run, status, started, ended, output, error, epoch, rev, steps, bytes, att)
            select d.tenant, d.id, d.status, d.started, rt.now(), d.output, d.error,
                   d.epoch + case when p_bump then 1 else 0 end, d.rev + (p_steps is not null)::int, d.all_steps, d.all_bytes, d.all_att
            from d
        ), x as (
            insert into rt.usage_delta (tenant, wf, day, kind, n)
            select d.tenant, d.wf, (rt.now() at time zone 'UTC')::date, 's', sum(d.all_uses) from d where d.all_uses > 0 group by d.tenant, d.wf
        )
        select d.id, d.tenant, d.owner, d.ga, d.gb from d;
end $$;

-- Deliver results to waits: the wait row goes, the step is memoized, the run's mail moves; a run nobody holds becomes ready.
-- Answers one row per run that got something. p_traced asks also for what its traces show of the waits, as a JSON list of
-- [kind, step id, opened, delivered, error's message, event], in unix milliseconds.
-- p_shared: what all of them get, in place of p_output. It is here once, however many they are.
create function rt.deliver_v1(p_wait uuid[], p_status text[], p_output text[], p_error text[], p_event uuid[], p_traced bool default false,
    p_shared text default null)
returns table (run uuid, tenant int, owner bigint, ga bigint, gb bigint, waits uuid[], resolved text) language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := rt.now();
    v_shared int := octet_length(p_shared);
begin
    -- The runs are locked, so their rows are changed at their places.
    return query
        with g as (
            delete from rt.wait w where w.id = any (p_wait) returning w.*, array_position(p_wait, w.id) as n
        ), x as (
            select g.*, p_status[g.n] as got, p_output[g.n] as output, p_error[g.n] as error, p_event[g.n] as by_event from g
        ), s as (
            insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, error, input, event, child, att, t0, t1)
            select x.tenant, x.run, x.sid, x.seq, coalesce(x.name, x.sid),
                   case x.kind when 's' then 's' when 'e' then 'e' else 'i' end,
                   x.got, coalesce(p_shared, x.output), x.error, x.fields, x.by_event, x.child, 1, x.created_at, v_now
            from x where x.kind in ('s', 'e', 'c')
            on conflict do nothing
        ), f as (
            select x.run, count(*)::int as n,
                   sum(coalesce(v_shared, octet_length(x.output), 0) + coalesce(octet_length(x.error), 0))::int as bytes,
                   array_agg(x.id) as waits, bool_or(x.kind = 'p') as unpark,
                   json_agg(json_build_array(x.kind, x.sid, rt.ms(x.created_at), rt.ms(v_now), rt.error_message(x.error), x.by_event))
                       filter (where p_traced)::text as resolved
            from x where x.kind <> 'x' group by x.run
        )
        update rt.live r set
            mail  = r.mail + f.n,
            bytes = r.bytes + f.bytes,
            st    = case when r.st in ('r', 'q', 'b') or (r.st = 'p' and not f.unpark) then r.st else rt.ready_st(r.ga, r.slot) end,
            qk    = case when r.st in ('r', 'q', 'b') or (r.st = 'p' and not f.unpark) then r.qk else rt.queue_key(r.prio) end
        from f cross join lateral (select l.ctid as at from rt.live l where l.id = f.run offset 0) l
        where r.ctid = l.at
        returning r.id, r.tenant, r.owner, r.ga, r.gb, f.waits, f.resolved;
end $$;
