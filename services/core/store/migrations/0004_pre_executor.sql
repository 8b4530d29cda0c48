-- What the holder of leases does: take runs, commit what their functions answered, renew, let go.

-- What the taker of a lease is told of its run.
create type rt.lease as (
    id uuid, tenant int, wf int, owner bigint, epoch bigint, rev bigint, mail int, steps int, bytes int, att int, att_from int,
    fn_att smallint, nd smallint, max_att smallint, gv bigint, ga bigint, gb bigint, parent uuid, affinity uuid, pooled bool,
    started timestamptz, taken timestamptz
);
create function rt.lease_of(r rt.live) returns rt.lease language sql immutable parallel safe as $$
    select row(r.id, r.tenant, r.wf, r.owner, r.epoch, r.rev, r.mail, r.steps, r.bytes, r.att, r.att_from, r.fn_att, r.nd, r.max_att,
               r.gv, r.ga, r.gb, r.parent, r.affinity, r.pooled, r.started, r.taken)::rt.lease
$$;

-- Take the lease of queued runs whose rows are locked. Those whose limits were changed meanwhile get none: blocked, in their old
-- place, they are to be put before the gates of now.
create function rt.take_v1(p_owner bigint, p_run uuid[], p_outdated uuid[]) returns setof rt.lease language plpgsql as $$
declare
    v_now timestamptz := rt.now();
begin
    if cardinality(p_outdated) > 0 then
        update rt.live r set st = 'b', slot = false where r.id = any (p_outdated);
    end if;
    return query
        update rt.live r set st = 'r', owner = p_owner, epoch = r.epoch + 1, qk = null, affinity = null,
                             started = coalesce(r.started, v_now), taken = v_now
        where r.id = any (p_run) returning (rt.lease_of(r)).*;
end $$;

-- Take the lease of queued runs that hints named. An owner that was declared dead takes nothing, though it may not know yet.
-- Those that only workers serve are not taken, and answered as they are (owner null): see claim_pooled_v1.
create function rt.claim_hinted_v1(p_owner bigint, p_runs uuid[], p_limit int) returns setof rt.lease language plpgsql as $$
declare
    v_run uuid[]; v_outdated uuid[];
begin
    select coalesce(array_agg(c.id) filter (where not c.outdated), '{}'), coalesce(array_agg(c.id) filter (where c.outdated), '{}')
        into v_run, v_outdated from (
        select r.id, r.gv <> coalesce((select g.version from rt.gate_rule g where g.wf = r.wf), 0) as outdated from rt.live r
        where r.id = any (p_runs) and r.st = 'q' and not r.pooled
          and not exists (select from rt.owner o where o.id = p_owner and o.dead offset 0)
        order by r.id limit p_limit for no key update of r skip locked
    ) c;
    return query select t.* from rt.take_v1(p_owner, v_run, v_outdated) t;
    if cardinality(v_run) < cardinality(p_runs) then
        return query select (rt.lease_of(r)).* from rt.live r where r.id = any (p_runs) and r.st = 'q' and r.pooled;
    end if;
end $$;

-- The same, so many of each tenant at most; p_other: of one that is not named. Tenants take turns.
create function rt.claim_hinted_fair_v1(p_owner bigint, p_runs uuid[], p_tenants int[], p_quota int[], p_other int, p_limit int)
returns setof rt.lease language plpgsql as $$
declare
    v_may uuid[];
begin
    select coalesce(array_agg(m.id), '{}') into v_may from (
        select h.id from (
            select r.id, r.tenant, row_number() over (partition by r.tenant order by r.id) as n
            from rt.live r where r.id = any (p_runs) and r.st = 'q' and not r.pooled) h
        left join unnest(p_tenants, p_quota) t(tenant, quota) on t.tenant = h.tenant
        where h.n <= coalesce(t.quota, p_other) order by h.n, h.id limit p_limit) m;
    return query select t.* from rt.claim_hinted_v1(p_owner, v_may, p_limit) t;
    return query select (rt.lease_of(r)).* from rt.live r where r.id = any (p_runs) and r.st = 'q' and r.pooled;
end $$;

-- Take the lease of the oldest queued runs, a quota for each tenant, so that no tenant's backlog hides another's run.
create function rt.claim_oldest_v1(p_owner bigint, p_tenants int[], p_quota int[], p_limit int) returns setof rt.lease language plpgsql as $$
declare
    v_run uuid[]; v_outdated uuid[];
begin
    select coalesce(array_agg(c.id) filter (where not c.outdated), '{}'), coalesce(array_agg(c.id) filter (where c.outdated), '{}')
        into v_run, v_outdated from (
        select q.id, q.outdated from unnest(p_tenants, p_quota) t(tenant, quota)
        cross join lateral (
            select r.id, r.gv <> coalesce((select g.version from rt.gate_rule g where g.wf = r.wf), 0) as outdated from rt.live r
            where r.tenant = t.tenant and r.st = 'q' and not r.pooled
            order by r.qk limit t.quota for no key update of r skip locked
        ) q
        where not exists (select from rt.owner o where o.id = p_owner and o.dead offset 0)
        limit p_limit
    ) c;
    return query select t.* from rt.take_v1(p_owner, v_run, v_outdated) t;
end $$;

-- Tenants that have a queued run that anybody may take, by a loose scan of the queue's index: the cost grows with tenants that wait, not with runs.
create function rt.ready_tenants_v1() returns setof int language sql stable as $$
    with recursive t as (
        (select r.tenant from rt.live r where r.st = 'q' and not r.pooled order by r.tenant limit 1)
        union all
        select (select r.tenant from rt.live r where r.st = 'q' and not r.pooled and r.tenant > t.tenant order by r.tenant limit 1)
        from t where t.tenant is not null
    )
    select tenant from t where tenant is not null
$$;

-- Why runs could not be committed: b busy (locked by another, ask again), f fenced, g gone.
create function rt.missed_v1(p_owner bigint, p_run uuid[], p_epoch bigint[], p_rev bigint[], p_ok uuid[])
returns table (run uuid, result text, mail int, st text, ga bigint) language sql stable as $$
    select b.run,
           (case when r.id is null then 'g' when r.owner = p_owner and r.epoch = b.epoch and r.rev = b.rev then 'b' else 'f' end)::text,
           r.mail, r.st::text, r.ga
    from unnest(p_run, p_epoch, p_rev) b(run, epoch, rev)
    left join lateral (select r.* from rt.live r where r.id = b.run offset 0) r on true
    where b.run <> all (p_ok)
$$;

-- End those of these runs whose commit came through: all of them, or the ones in p_ok.
create function rt.finish_committed_v1(p_all bool, p_ok uuid[], p_run uuid[], p_status text[], p_output text[], p_error text[])
returns void language plpgsql as $$
begin
    perform from (
        select coalesce(array_agg(u.run order by u.n), '{}') as run, array_agg(u.status order by u.n) as status,
               array_agg(u.output order by u.n) as output, array_agg(u.error order by u.n) as error
        from unnest(p_run, p_status, p_output, p_error) with ordinality u(run, status, output, error, n)
        where p_all or u.run = any (p_ok)
    ) e cross join lateral rt.finish_v1(e.run, e.status, e.output, e.error, false) f;
end $$;

-- Commit what the holder decided, one item per run, all of it or (for a run that is not ours any more) nothing of it.
-- Answers per run: d done (mail, st, now), b busy (locked by another, ask again), f fenced, g gone. st y: it is held, and others
-- wait for its slot.
create function rt.commit_v1(
    p_owner bigint,
    h_run uuid[], h_epoch bigint[], h_rev bigint[], h_mail int[], h_keep bool[], h_st text[],
    h_steps int[], h_bytes int[], h_fn_att smallint[], h_nd smallint[], h_att int[], h_uses int[], h_ga bigint[], h_gb bigint[],
    s_run uuid[], s_tenant int[], s_sid text[], s_seq int[], s_name text[], s_kind text[], s_status text[],
    s_output text[], s_error text[], s_input text[], s_att int[], s_ms int[],
    a_run uuid[], a_tenant int[], a_n int[], a_sid text[], a_k int[], a_error text[], a_note text[], a_ms int[],
    a_epoch bigint[], a_inv int[], a_op int[],
    e_run uuid[], e_status text[], e_output text[], e_error text[],
    m_run uuid[], m_tenant int[], m_kind text[], m_body text[]
) returns table (run uuid, result text, mail int, st text, ga bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_ok uuid[];
    v_all bool;
    v_now timestamptz;
begin
    -- The guard is read from the locked row; a row that another transaction holds is not waited for.
    select coalesce(array_agg(l.id), '{}') into v_ok
        from (select * from unnest(h_run, h_epoch, h_rev) u(run, epoch, rev) order by u.run) b
        cross join lateral (
            select l.id from rt.live l
            where l.id = b.run and (l.owner = p_owner) is true and l.epoch = b.epoch and l.rev = b.rev
            for no key update skip locked
        ) l;
    v_all := cardinality(v_ok) = cardinality(h_run);
    v_now := rt.now();
    if cardinality(v_ok) > 0 then
        insert into rt.usage_delta (tenant, wf, day, kind, n)
            select r.tenant, r.wf, (v_now at time zone 'UTC')::date, 's', sum(r.uses + b.uses)
            from unnest(h_run, h_uses) b(run, uses) join rt.live r on r.id = b.run
            where r.uses + b.uses > 0 and (v_all or r.id = any (v_ok)) group by r.tenant, r.wf;
        return query
            update rt.live r set
                rev    = r.rev + 1,
                uses   = 0,
                steps  = r.steps + b.steps,
                bytes  = r.bytes + b.bytes,
                fn_att = b.fn_att,
                nd     = b.nd,
                att    = r.att + b.att,
                owner  = case when b.keep then r.owner end,
                -- A delivery that the holder has not seen turns letting go into the queue: nobody sleeps over it.
                st     = case when b.keep then 'r' when b.st in ('q', 'r') or r.mail <> b.mail then rt.ready_st(r.ga, false)
                              else b.st::"char" end,
                qk     = case when not b.keep and (b.st in ('q', 'r') or r.mail <> b.mail) then rt.queue_key(r.prio) end,
                slot   = b.keep and r.slot
            from (select v.run, v.mail, v.st, v.steps, v.bytes, v.fn_att, v.nd, v.att,
                         -- A run at one of whose gates others wait hands its slot on after each step (rulings 3.5), or as soon
                         -- as nothing of it is executed (x: something is, in the process that holds it).
                         v.keep and (v.st = 'x' or not v.wanted) as keep, v.st = 'x' and v.wanted as wanted
                  from (select u.*,
                               -- Of two gates only those count that stand in line for this one: the others wait for another.
                               case when not u.keep or u.ga is null then false
                                   when u.gb is null then exists (select from rt.live o where o.ga = u.ga and o.st = 'b' offset 0)
                                   else exists (select from rt.live o where o.line = u.ga offset 0)
                                        or exists (select from rt.live o where o.line = u.gb offset 0) end as wanted
                        from unnest(h_run, h_mail, h_keep, h_st, h_steps, h_bytes, h_fn_att, h_nd, h_att, h_ga, h_gb)
                             u(run, mail, keep, st, steps, bytes, fn_att, nd, att, ga, gb)
                        where v_all or u.run = any (v_ok)) v) b
            where r.id = b.run and (v_all or r.id = any (v_ok))
            returning r.id, 'd'::text, r.mail, case when b.wanted then 'y' else r.st::text end, r.ga;
        if cardinality(s_run) > 0 then
            insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, error, input, att, t0, t1)
                select u.tenant, u.run, u.sid, u.seq, u.name, u.kind, u.status, u.output, u.error, u.input, u.att,
                       v_now - u.ms * interval '1 millisecond', v_now
                from unnest(s_tenant, s_run, s_sid, s_seq, s_name, s_kind, s_status, s_output, s_error, s_input, s_att, s_ms)
                     u(tenant, run, sid, seq, name, kind, status, output, error, input, att, ms)
                where v_all or u.run = any (v_ok)
                on conflict do nothing;
        end if;
        if cardinality(a_run) > 0 then
            insert into rt.attempts (tenant, run, n, sid, k, error, note, t0, t1, epoch, inv, op)
                select u.tenant, u.run, u.n, u.sid, u.k, u.error, u.note, v_now - u.ms * interval '1 millisecond', v_now,
                       u.epoch, u.inv, u.op
                from unnest(a_tenant, a_run, a_n, a_sid, a_k, a_error, a_note, a_ms, a_epoch, a_inv, a_op)
                     u(tenant, run, n, sid, k, error, note, ms, epoch, inv, op)
                where v_all or u.run = any (v_ok)
                on conflict do nothing;
        end if;
        if cardinality(m_run) > 0 then
            insert into rt.mark (tenant, target, kind, body)
                select u.tenant, u.run, u.kind, u.body from unnest(m_run, m_tenant, m_kind, m_body) u(run, tenant, kind, body)
                where v_all or u.run = any (v_ok);
        end if;
        if cardinality(e_run) > 0 then
            perform rt.finish_committed_v1(v_all, v_ok, e_run, e_status, e_output, e_error);
        end if;
    end if;
    if not v_all then
        return query select m.* from rt.missed_v1(p_owner, h_run, h_epoch, h_rev, v_ok) m;
    end if;
end $$;

-- A run, those it waits for, those that they wait for, and so on.
create function rt.awaited_v1(p_run uuid) returns uuid[] language sql volatile as $$
    with recursive a as (
        select p_run as run
        union
        select w.child from a cross join lateral (select w.child from rt.wait w where w.run = a.run and w.child is not null offset 0) w
    )
    select array_agg(a.run) from a
$$;

-- Whether a run is, or waits for, another one: null where that cannot be known just now. The rows on the way are held, so no
-- other transaction makes the answer wrong before the caller's end.
create function rt.waits_for_v1(p_run uuid, p_for uuid) returns bool language plpgsql as $$
declare
    v_way uuid[] := rt.awaited_v1(p_run);
    v_held uuid[];
begin
    v_held := array(select r.id from rt.live r where r.id = any (v_way) for share skip locked);
    if exists (select from rt.live r where r.id = any (v_way) and r.id <> all (v_held)) or not (v_way @> rt.awaited_v1(p_run)) then
        return null;
    end if;
    return p_for = any (v_way);
end $$;

-- commit_v1 with waits to open and children to start, in one transaction.
create function rt.commit_full_v1(
    p_owner bigint,
    h_run uuid[], h_epoch bigint[], h_rev bigint[], h_mail int[], h_keep bool[], h_st text[],
    h_steps int[], h_bytes int[], h_fn_att smallint[], h_nd smallint[], h_att int[], h_uses int[], h_ga bigint[], h_gb bigint[],
    s_run uuid[], s_tenant int[], s_sid text[], s_seq int[], s_name text[], s_kind text[], s_status text[],
    s_output text[], s_error text[], s_input text[], s_att int[], s_ms int[],
    a_run uuid[], a_tenant int[], a_n int[], a_sid text[], a_k int[], a_error text[], a_note text[], a_ms int[],
    a_epoch bigint[], a_inv int[], a_op int[],
    e_run uuid[], e_status text[], e_output text[], e_error text[],
    m_run uuid[], m_tenant int[], m_kind text[], m_body text[],
    w_run uuid[], w_tenant int[], w_id uuid[], w_kind text[], w_seq int[], w_sid text[], w_name text[], w_fields text[],
    w_event text[], w_name_h bigint[], w_path text[], w_path_h bigint[], w_val_h bigint[], w_cond text[],
    w_child uuid[], w_delay_ms bigint[], w_at_ms bigint[], w_arming bool[], w_lookback_ms bigint[], w_gone_ms int[],
    r_id uuid[], r_tenant int[], r_wf int[], r_project int[], r_source text[],
    r_event uuid[], r_event_name text[], r_event_ts bigint[], r_event_data text[],
    r_idem text[], r_test bool[], r_parent uuid[], r_replay_of uuid[], r_tags text[], r_version text[], r_trace text[],
    r_max_att smallint[], r_timeout_ms bigint[], r_delay_ms bigint[], r_at_ms bigint[], r_prio smallint[],
    r_gv bigint[], r_ga bigint[], r_gb bigint[]
) returns table (run uuid, result text, mail int, st text, ga bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_done uuid[] := '{}';
    v_child uuid[]; v_found uuid[]; v_open uuid[];
    v_row record;
begin
    for v_row in select * from rt.commit_v1(
        p_owner, h_run, h_epoch, h_rev, h_mail, h_keep, h_st, h_steps, h_bytes, h_fn_att, h_nd, h_att,
        h_uses, h_ga, h_gb, s_run, s_tenant, s_sid, s_seq, s_name, s_kind, s_status, s_output, s_error, s_input, s_att,
        s_ms, a_run, a_tenant, a_n, a_sid, a_k, a_error, a_note, a_ms,
        a_epoch, a_inv, a_op, e_run, e_status, e_output, e_error,
        m_run, m_tenant, m_kind, m_body) loop
        run := v_row.run; result := v_row.result; mail := v_row.mail; st := v_row.st; ga := v_row.ga;
        if result = 'd' then v_done := v_done || run; end if;
        return next;
    end loop;
    if cardinality(v_done) = 0 then return; end if;
    if cardinality(r_id) = 0 then
        perform rt.wait_v1(
            w_run, w_tenant, w_id, w_kind, w_seq, w_sid, w_name, w_fields, w_event, w_name_h, w_path, w_path_h,
            w_val_h, w_cond, w_child, w_delay_ms, w_at_ms, w_arming, w_lookback_ms,
            v_done, w_gone_ms);
        return;
    end if;
    select array_agg(r_id[s.ord]), array_agg(s.run) into v_child, v_found
        from rt.start_v1(
            r_id, r_tenant, r_wf, r_project, r_source, r_event, r_event_name, r_event_ts, r_event_data, r_idem,
            r_test, r_parent, r_replay_of, r_tags, r_version, r_trace, r_max_att, r_timeout_ms, r_delay_ms,
            r_at_ms, r_prio, r_gv, r_ga, r_gb,
            v_done) s
        where not s.is_new;
    perform rt.wait_v1(
        w_run, w_tenant, w_id, w_kind, w_seq, w_sid, w_name, w_fields, w_event, w_name_h, w_path, w_path_h,
        w_val_h, w_cond, w_child, w_delay_ms, w_at_ms, w_arming, w_lookback_ms,
        v_done || r_id, w_gone_ms);
    if v_found is null then return; end if;
    -- Idempotency may lead to a run that exists: wait for that one. While we hold its row it cannot end without seeing the
    -- wait; where it has ended, or may be ending just now, a mark asks until the wait is served. So it does where that run
    -- waits for ours, or may: then the wait is one without end.
    update rt.wait w set child = c.run from unnest(v_child, v_found) c(id, run) where w.child = c.id and w.child = any (v_child);
    select coalesce(array_agg(l.id), '{}') into v_open from (
        select r.id from rt.live r where r.id = any (v_found) for share skip locked
    ) l;
    insert into rt.mark (tenant, target, kind, body)
        select distinct w.tenant, w.run, 'child_end', w.child::text
        from rt.wait w where w.run = any (v_done) and w.child = any (v_found)
            and (w.child <> all (v_open) or rt.waits_for_v1(w.child, w.run) is distinct from false);
end $$;

-- After a commit whose answer was lost: did it happen? Only the holder moves rev under its epoch, so rev + 1 proves it was ours.
create function rt.committed_v1(p_owner bigint, p_run uuid[], p_tenant int[], p_epoch bigint[], p_rev bigint[])
returns table (run uuid, result text, mail int, st text, ga bigint) language sql stable as $$
    select u.run,
           (case when r.id is not null and r.epoch = u.epoch and r.rev = u.rev + 1 then 'd'
                 when r.id is not null and r.owner = p_owner and r.epoch = u.epoch and r.rev = u.rev then 'n'
                 when e.run is not null and e.epoch = u.epoch and e.rev = u.rev + 1 then 'd'
                 when r.id is null then 'g' else 'f' end)::text,
           r.mail, r.st::text, r.ga
    from unnest(p_run, p_tenant, p_epoch, p_rev) u(run, tenant, epoch, rev)
    left join lateral (select r.* from rt.live r where r.id = u.run offset 0) r on true
    left join lateral (select e.* from rt.ends e where e.tenant = u.tenant and e.run = u.run offset 0) e on r.id is null
$$;

-- Give runs back without counting an attempt (drain, making room for others, or a claim that cannot be used): st q, epoch moves.
-- Only the leases that are named by their epochs: what was taken from us and claimed again meanwhile is another lease.
-- p_first: they go on before those that have come since they began. However long the queue is, a run in the middle is not to be
-- behind all of it. Told of their projects, it also settles anew who may claim them.
create function rt.let_go_v1(p_owner bigint, p_run uuid[], p_epoch bigint[], p_first bool default false, p_project int[] default null)
returns setof uuid language sql as $$
    update rt.live r set st = rt.ready_st(r.ga, r.slot), owner = null, epoch = r.epoch + 1, affinity = null,
        qk = case when p_first then coalesce(r.started, rt.now()) - r.prio * interval '1 second' else rt.queue_key(r.prio) end,
        pooled = coalesce((select exists (select from rt.pool p where p.project = u.project offset 0)
                           from unnest(p_run, p_project) u(run, project) where u.run = r.id and u.project is not null), r.pooled)
    from unnest(p_run, p_epoch) l(run, epoch)
    where r.id = l.run and r.id = any (p_run) and r.owner = p_owner and r.epoch = l.epoch returning r.id
$$;

create function rt.beat_v1(p_owner bigint) returns bool language sql as $$
    update rt.owner set beat_at = rt.now(), beats = beats + 1 where id = p_owner and not dead returning true
$$;
