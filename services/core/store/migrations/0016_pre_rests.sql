-- Commits of runs that stand behind no gate, and claims of those whose rest is over, as rows: many in few statements.

-- What a commit brings of each run, in the order in which it is sent: one array of rows costs sender and receiver less than one
-- array for each of their columns.
create type rt.head_row as (run uuid, epoch bigint, rev bigint, steps int, bytes int, fn_att smallint, nd smallint, uses int);
create type rt.step_row as (
    run uuid, tenant int, sid text, seq int, name text, kind text, status text, output text, error text, input text, att int, ms int
);
create type rt.end_row as (
    run uuid, epoch bigint, rev bigint, steps int, bytes int, uses int, att int, status text, output text, error text
);

-- Commit, as commit_v1 does, runs that go on or end, that stand behind no gate, and of which nothing but results is to be stored: what
-- nearly all commits are. What they have used is counted with a later commit, or their end. Those that end (p_ends, the others are
-- p_heads) are just locked, until their rows go.
create function rt.commit_steps_v1(p_owner bigint, p_heads rt.head_row[], p_steps rt.step_row[], p_ends rt.end_row[])
returns table (run uuid, result text, mail int, st text, ga bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_ok uuid[] := '{}'; v_mail int[] := '{}';
    v_all bool;
    v_now timestamptz;
begin
    -- Each row is found by its key and changed at its place: whatever the planner thinks of the table, a batch costs what it
    -- holds. No index is found for an owner that "is true": a new table knows nothing of how many rows an owner has.
    if cardinality(p_heads) > 0 then
        with u as (
            update rt.live r set
                rev = r.rev + 1, steps = r.steps + b.steps, bytes = r.bytes + b.bytes, fn_att = b.fn_att, nd = b.nd, uses = r.uses + b.uses
            from unnest(p_heads) b
            cross join lateral (
                select l.ctid as at from rt.live l
                where l.id = b.run and (l.owner = p_owner) is true and l.epoch = b.epoch and l.rev = b.rev
                for no key update skip locked
            ) l
            where r.ctid = l.at
            returning r.id, r.mail
        )
        select coalesce(array_agg(u.id), '{}'), array_agg(u.mail) into v_ok, v_mail from u;
    end if;
    if cardinality(p_ends) > 0 then
        select v_ok || coalesce(array_agg(l.id), '{}'), v_mail || array_agg(l.mail) into v_ok, v_mail
            from unnest(p_ends) b
            cross join lateral (
                select l.id, l.mail from rt.live l
                where l.id = b.run and (l.owner = p_owner) is true and l.epoch = b.epoch and l.rev = b.rev
                for update skip locked
            ) l;
    end if;
    -- As nearly always; to look for each in v_ok costs the square of them.
    v_all := cardinality(v_ok) = cardinality(p_heads) + cardinality(p_ends);
    v_now := rt.now();
    return query select u.id, 'd'::text, u.mail, 'r'::text, null::bigint from unnest(v_ok, v_mail) u(id, mail);
    if cardinality(p_steps) > 0 then
        insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, error, input, att, t0, t1)
            select u.tenant, u.run, u.sid, u.seq, u.name, u.kind, u.status, u.output, u.error, u.input, u.att,
                   v_now - u.ms * interval '1 millisecond', v_now
            from unnest(p_steps) u
            where v_all or u.run = any (v_ok)
            on conflict do nothing;
    end if;
    if cardinality(p_ends) > 0 then
        perform from (
            select coalesce(array_agg(u.run), '{}') as run, array_agg(u.status) as status, array_agg(u.output) as output,
                   array_agg(u.error) as error, array_agg(u.steps) as steps, array_agg(u.bytes) as bytes, array_agg(u.uses) as uses,
                   array_agg(u.att) as att
            from unnest(p_ends) u
            where v_all or u.run = any (v_ok)
        ) e cross join lateral rt.finish_v1(e.run, e.status, e.output, e.error, false, e.steps, e.bytes, e.uses, e.att) f;
    end if;
    if not v_all then
        return query
            select m.* from (
                select array_agg(b.run) as run, array_agg(b.epoch) as epoch, array_agg(b.rev) as rev from (
                    select b.run, b.epoch, b.rev from unnest(p_heads) b union all select e.run, e.epoch, e.rev from unnest(p_ends) e) b
            ) h cross join lateral rt.missed_v1(p_owner, h.run, h.epoch, h.rev, v_ok) m;
    end if;
end $$;

create type rt.rest_row as (
    run uuid, epoch bigint, rev bigint, mail int, st text, steps int, bytes int, fn_att smallint, nd smallint, att int, uses int, counted bool
);
create type rt.attempt_row as (
    run uuid, tenant int, n int, sid text, k int, error text, note text, ms int, epoch bigint, inv int, op int
);

-- Commit, as commit_steps_v1 does, runs that may also be put to rest, with attempts that failed and with waits: all but what has to
-- do with gates, children and marks. st: where a run comes to rest, null: it goes on. counted: its uses are, as they are with every rest.
create function rt.commit_rests_v1(
    p_owner bigint, p_heads rt.rest_row[], p_steps rt.step_row[], p_attempts rt.attempt_row[], p_ends rt.end_row[], p_waits rt.wait_row[],
    p_tenants int[], p_counts int[], p_whole bool, p_path_tenant int[], p_path_name_h bigint[], p_path text[], p_path_h bigint[]
) returns table (run uuid, result text, mail int, st text, ga bigint) language plpgsql as $$
#variable_conflict use_column
declare
    v_ok uuid[] := '{}'; v_mail int[] := '{}'; v_st text[] := '{}';
    v_all bool;
    v_now timestamptz;
begin
    if cardinality(p_heads) > 0 then
        with u as (
            update rt.live r set
                rev    = r.rev + 1,
                uses   = case when b.counted then 0 else r.uses + b.uses end,
                steps  = r.steps + b.steps,
                bytes  = r.bytes + b.bytes,
                fn_att = b.fn_att,
                nd     = b.nd,
                att    = r.att + b.att,
                owner  = case when b.st is null then r.owner end,
                -- A delivery that the holder has not seen turns letting go into the queue: nobody sleeps over it.
                st     = case when b.st is null then r.st when b.st in ('q', 'r') or r.mail <> b.mail then rt.ready_st(r.ga, false)
                              else b.st::"char" end,
                qk     = case when b.st in ('q', 'r') or b.st is not null and r.mail <> b.mail then rt.queue_key(r.prio) end,
                slot   = b.st is null and r.slot
            from unnest(p_heads) b
            cross join lateral (
                select l.ctid as at, l.uses from rt.live l
                where l.id = b.run and (l.owner = p_owner) is true and l.epoch = b.epoch and l.rev = b.rev
                for no key update skip locked
            ) l
            where r.ctid = l.at
            returning r.id, r.mail, r.st, r.tenant, r.wf, case when b.counted then l.uses + b.uses else 0 end as used
        ), x as (
            insert into rt.usage_delta (tenant, wf, day, kind, n)
            select u.tenant, u.wf, (rt.now() at time zone 'UTC')::date, 's', sum(u.used) from u where u.used > 0 group by u.tenant, u.wf
        )
        select coalesce(array_agg(u.id), '{}'), array_agg(u.mail), array_agg(u.st::text) into v_ok, v_mail, v_st from u;
    end if;
    if cardinality(p_ends) > 0 then
        select v_ok || coalesce(array_agg(l.id), '{}'), v_mail || array_agg(l.mail), v_st || array_agg('r'::text) into v_ok, v_mail, v_st
            from unnest(p_ends) b
            cross join lateral (
                select l.id, l.mail from rt.live l
                where l.id = b.run and (l.owner = p_owner) is true and l.epoch = b.epoch and l.rev = b.rev
                for update skip locked
            ) l;
    end if;
    v_all := cardinality(v_ok) = cardinality(p_heads) + cardinality(p_ends);
    v_now := rt.now();
    return query select u.id, 'd'::text, u.mail, u.st, null::bigint from unnest(v_ok, v_mail, v_st) u(id, mail, st);
    if cardinality(p_steps) > 0 then
        insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, error, input, att, t0, t1)
            select u.tenant, u.run, u.sid, u.seq, u.name, u.kind, u.status, u.output, u.error, u.input, u.att,
                   v_now - u.ms * interval '1 millisecond', v_now
            from unnest(p_steps) u
            where v_all or u.run = any (v_ok)
            on conflict do nothing;
    end if;
    if cardinality(p_attempts) > 0 then
        insert into rt.attempts (tenant, run, n, sid, k, error, note, t0, t1, epoch, inv, op)
            select u.tenant, u.run, u.n, u.sid, u.k, u.error, u.note, v_now - u.ms * interval '1 millisecond', v_now,
                   u.epoch, u.inv, u.op
            from unnest(p_attempts) u
            where v_all or u.run = any (v_ok)
            on conflict do nothing;
    end if;
    if cardinality(p_ends) > 0 then
        perform from (
            select coalesce(array_agg(u.run), '{}') as run, array_agg(u.status) as status, array_agg(u.output) as output,
                   array_agg(u.error) as error, array_agg(u.steps) as steps, array_agg(u.bytes) as bytes, array_agg(u.uses) as uses,
                   array_agg(u.att) as att
            from unnest(p_ends) u
            where v_all or u.run = any (v_ok)
        ) e cross join lateral rt.finish_v1(e.run, e.status, e.output, e.error, false, e.steps, e.bytes, e.uses, e.att) f;
    end if;
    if cardinality(p_waits) > 0 and cardinality(v_ok) > 0 then
        if cardinality(p_path) > 0 then
            perform rt.paths_v1(p_path_tenant, p_path_name_h, p_path, p_path_h);
        end if;
        perform rt.open_waits_v1(p_waits, p_tenants, p_counts, p_whole, case when not v_all then v_ok end);
    end if;
    if not v_all then
        return query
            select m.* from (
                select array_agg(b.run) as run, array_agg(b.epoch) as epoch, array_agg(b.rev) as rev from (
                    select b.run, b.epoch, b.rev from unnest(p_heads) b union all select e.run, e.epoch, e.rev from unnest(p_ends) e) b
            ) h cross join lateral rt.missed_v1(p_owner, h.run, h.epoch, h.rev, v_ok) m;
    end if;
end $$;

-- Fire these sleeps and backoffs as far as they are due, as fire_v1 does, and take the lease of the runs that are ready by it, with
-- the same change of their rows: for an executor that knows its timers. What is due within p_ahead_ms is prepared, and the transaction
-- ends when the last of it is due: no timer fires early, and none waits for the work that it makes. It takes p_limit runs at most, and where tenants share its
-- slots so many of each (see claim_hinted_fair_v1). Answers a row that tells which of the waits are still there, and in how many
-- milliseconds they are due (0, and another transaction holds the run); and one for each run that got something, with who held it
-- until now, and `claimed` where it is taken. A run that only workers serve has a further row, with `claimed` as the claims answer it.
create function rt.wake_v1(
    p_owner bigint, p_wait uuid[], p_ahead_ms int, p_traced bool, p_limit int,
    p_tenants int[] default null, p_quota int[] default null, p_other int default null
) returns table (run uuid, tenant int, owner bigint, ga bigint, gb bigint, resolved text, claimed rt.lease, left_wait uuid[], left_ms int[])
language plpgsql as $$
#variable_conflict use_column
declare
    v_wait uuid[]; v_free uuid[]; v_free_tenant int[]; v_other uuid[]; v_odd uuid[];
    v_now timestamptz := rt.now();
    v_until timestamptz := v_now + p_ahead_ms * interval '1 millisecond';
    v_last timestamptz;
begin
    left_wait := '{}'; left_ms := '{}';
    -- `free`: what the claims would take as soon as it is ready. `odd`: what they would look at and not take.
    select array_agg(l.id), coalesce(array_agg(l.run) filter (where l.free), '{}'), array_agg(l.tenant) filter (where l.free),
           coalesce(array_agg(l.run) filter (where not l.free), '{}'), array_agg(l.run) filter (where l.odd), max(l.due_at)
        into v_wait, v_free, v_free_tenant, v_other, v_odd, v_last from (
        select w.id, w.run, w.tenant, w.due_at, r.odd,
               r.ready and not r.odd and not exists (select from rt.owner o where o.id = p_owner and o.dead offset 0) as free
        from rt.wait w cross join lateral (
            select r.st in ('s', 'w', 'd', 'q') and (r.ga is null or r.slot) as ready,
                   r.pooled or r.gv <> coalesce((select g.version from rt.gate_rule g where g.wf = r.wf), 0) as odd
            from rt.live r where r.id = w.run and r.deadline > greatest(v_now, w.due_at) for no key update skip locked
        ) r
        where w.id = any (p_wait) and w.due_at <= v_until and w.kind in ('s', 'b')
        order by w.due_at
    ) l;
    if p_tenants is not null or cardinality(v_free) > p_limit then
        v_other := v_other || array(
            select u.run from unnest(v_free) u(run) where u.run <> all (array(
                select f.run from (
                    select u.run, u.tenant, row_number() over (partition by u.tenant order by min(u.n)) as n
                    from unnest(v_free, v_free_tenant) with ordinality u(run, tenant, n) group by u.run, u.tenant
                ) f left join unnest(p_tenants, p_quota) t(tenant, quota) on t.tenant = f.tenant
                where p_tenants is null or f.n <= coalesce(t.quota, p_other) order by f.n limit p_limit)));
    end if;
    if v_wait is not null then
        return query
            with x as (
                delete from rt.wait w where w.id = any (v_wait) returning w.*
            ), s as (
                insert into rt.steps (tenant, run, sid, seq, name, kind, status, input, att, t0, t1)
                select x.tenant, x.run, x.sid, x.seq, coalesce(x.name, x.sid), 's', 'c', x.fields, 1, x.created_at, greatest(v_now, x.due_at)
                from x where x.kind = 's'
                on conflict do nothing
            ), f as (
                select x.run, count(*)::int as n, x.run <> all (v_other) as take,
                       json_agg(json_build_array(x.kind, x.sid, rt.ms(x.created_at), rt.ms(greatest(v_now, x.due_at)), null, null))
                           filter (where p_traced)::text as resolved
                from x group by x.run
            )
            update rt.live r set
                mail     = r.mail + f.n,
                st       = case when f.take then 'r' when r.st in ('r', 'q', 'b', 'p') then r.st else rt.ready_st(r.ga, r.slot) end,
                qk       = case when f.take then null when r.st in ('r', 'q', 'b', 'p') then r.qk else rt.queue_key(r.prio) end,
                owner    = case when f.take then p_owner else r.owner end,
                epoch    = r.epoch + f.take::int,
                affinity = case when not f.take then r.affinity end,
                started  = case when f.take then coalesce(r.started, v_now) else r.started end,
                taken    = case when f.take then v_now else r.taken end
            from f cross join lateral (select l.ctid as at from rt.live l where l.id = f.run offset 0) l
            where r.ctid = l.at
            returning r.id, r.tenant, case when not f.take then r.owner end, r.ga, r.gb, f.resolved,
                      case when f.take then rt.lease_of(r) end, null::uuid[], null::int[];
        if p_limit > 0 and v_odd is not null then
            return query select null::uuid, null::int, null::bigint, null::bigint, null::bigint, null::text, c, null::uuid[], null::int[]
                from rt.claim_hinted_v1(p_owner, v_odd, greatest(0, p_limit - cardinality(v_free))) c;
        end if;
    end if;
    if v_wait is null or cardinality(v_wait) < cardinality(p_wait) then
        select coalesce(array_agg(w.id), '{}'),
               coalesce(array_agg(least(greatest(0, ceil(extract(epoch from w.due_at - v_now) * 1000)), 2147483647)::int), '{}')
            into left_wait, left_ms from rt.wait w where w.id = any (p_wait);
    end if;
    -- What was done ahead is committed when the last of it is due, and nobody sees it before. Where the clock was set back meanwhile,
    -- that may be long, and the runs are locked: then nothing is done. If it is set back during pg_sleep, that ends when the clock shows
    -- the same again, and so does any time limit of Postgres: whoever called ends it (end_wait).
    if v_last > rt.now() then
        perform pg_sleep(least(extract(epoch from v_last - rt.now()), p_ahead_ms / 1000.0));
        if v_last > rt.now() then
            raise exception 'the clock was set back while timers were being fired' using errcode = 'query_canceled';
        end if;
    end if;
    return next;
end $$;
