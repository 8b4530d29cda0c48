-- Concurrency gates (rulings C16). The truth is `rt.live.slot`: nobody counts into a row, so nothing drifts.
-- A limited run waits as `b`; only grant_v1 lets it through, so a limit is never exceeded by construction.
--
-- A run has one gate for each limit, by the value of the limit's key. Runs with the same two gates are a pair's: the oldest
-- of them stands for all in the line before that gate of the two that is full, so a slot is given away by looking at the
-- front of a line, however many runs wait and whatever the keys are.
-- A gate has room for so many as its limit says now, less the runs with a slot, less every leased run of the workflow whose
-- gates were found before the limits were changed: those may stand before any gate, and are soon put before theirs.

-- What is left of p_most of a gate; p_second: it is the second of the limits.
create function rt.gate_room_v1(p_gate bigint, p_second bool, p_version bigint, p_most int) returns int language sql stable as $$
    select case when p_most <= 0 then 0
        when p_second then p_most - (
            select count(*)::int from (select from rt.live r where r.gb = p_gate and r.slot and r.gv = p_version limit p_most) h)
        else p_most - (
            select count(*)::int from (select from rt.live r where r.ga = p_gate and r.slot and r.gv = p_version limit p_most) h)
        end
$$;

-- How many runs of a workflow are leased by what was before its limits of this version, or parked, which is nearly the same. A
-- lease that begins after the change is looked at by its holder before anything is invoked, so once there are none it stays so.
create function rt.strangers_v1(p_wf int, p_version bigint) returns int language plpgsql as $$
declare
    v_n int;
begin
    select (select count(*) from rt.live r
            where r.owner >= '-9223372036854775808'::bigint and r.wf = p_wf and r.gv <> p_version)
         + (select count(*) from rt.live r where r.st = 'p' and r.wf = p_wf and r.gv <> p_version) into v_n;
    if v_n = 0 then
        update rt.gate_rule set settled = true where wf = (
            select g.wf from rt.gate_rule g where g.wf = p_wf and g.version = p_version for no key update skip locked);
    end if;
    return v_n;
end $$;

-- Let the oldest blocked runs through gates of a workflow with one limit. Granters of different gates do not wait for each other.
create function rt.grant_one_v1(p_wf int, p_gates bigint[]) returns table (run uuid, tenant int) language plpgsql as $$
#variable_conflict use_column
declare
    v_gate bigint; v_rule rt.gate_rule%rowtype; v_most int; v_n int;
    v_batch constant int := 1000;
begin
    perform pg_advisory_xact_lock_shared(p_wf, 1);
    for v_gate in
        select u.g from (select distinct unnest(p_gates) as g) u
        where u.g is not null and exists (select from rt.live r where r.ga = u.g and r.st = 'b' offset 0)
        order by hashint8(u.g), u.g
    loop
        perform pg_advisory_xact_lock(hashint8(v_gate), 2);
        select g.* into v_rule from rt.gate_rule g where g.wf = p_wf;
        if v_rule.a is null or v_rule.b is not null then return; end if;
        v_most := v_rule.a - case when v_rule.settled then 0 else rt.strangers_v1(p_wf, v_rule.version) end;
        return query
            update rt.live r set slot = true, st = 'q'
            where r.id = any (array(
                select c.id from rt.live c
                where c.ga = v_gate and coalesce(c.gb, 0) = 0 and c.gv = v_rule.version and c.st = 'b'
                order by c.qk
                limit least(v_batch, greatest(0, rt.gate_room_v1(v_gate, false, v_rule.version, v_most)))
                for no key update skip locked))
            returning r.id, r.tenant;
        get diagnostics v_n = row_count;
        if v_n = v_batch then run := null; tenant := null; return next; end if;
    end loop;
end $$;

-- Let the oldest blocked runs through gates of a workflow with two limits, where both have room. A run in front of a line whose
-- other gate is full moves to the line of that one: it is looked at again when that one has room.
create function rt.grant_two_v1(p_wf int, p_ga bigint[], p_gb bigint[]) returns table (run uuid, tenant int) language plpgsql as $$
#variable_conflict use_column
declare
    v_rule rt.gate_rule%rowtype; v_strangers int;
    v_open bigint[]; v_known bigint[] := '{}'; v_rooms int[] := '{}'; v_busy uuid[] := '{}';
    v_head record; v_a int; v_b int;
begin
    perform pg_advisory_xact_lock(p_wf, 1);
    select g.* into v_rule from rt.gate_rule g where g.wf = p_wf;
    if v_rule.b is null then return; end if;
    v_strangers := case when v_rule.settled then 0 else rt.strangers_v1(p_wf, v_rule.version) end;
    -- Somebody stands for each of these pairs: for one that is new, or whose first has ended, that is its oldest.
    update rt.live r set line = r.ga where r.id = any (array(
        select c.id from unnest(p_ga, p_gb) u(ga, gb) cross join lateral (
            select x.id, x.line from rt.live x
            where x.ga = u.ga and coalesce(x.gb, 0) = u.gb and x.gv = v_rule.version and x.st = 'b'
            order by x.qk limit 1 for no key update skip locked) c
        where u.gb <> 0 and c.line is null));
    v_open := array(select distinct g from unnest(p_ga || p_gb) g where g is not null);
    for v_turn in 1..300 loop
        select h.* into v_head from unnest(v_open) o(gate) cross join lateral (
            select r.id, r.ga, r.gb, r.line, r.qk from rt.live r
            where r.line = o.gate and r.gv = v_rule.version and r.id <> all (v_busy) order by r.qk limit 1) h
        order by h.qk limit 1;
        if not found then return; end if;
        v_a := array_position(v_known, v_head.ga);
        if v_a is null then
            v_known := v_known || v_head.ga;
            v_rooms := v_rooms || rt.gate_room_v1(v_head.ga, false, v_rule.version, v_rule.a - v_strangers);
            v_a := cardinality(v_known);
        end if;
        v_b := array_position(v_known, v_head.gb);
        if v_b is null then
            v_known := v_known || v_head.gb;
            v_rooms := v_rooms || rt.gate_room_v1(v_head.gb, true, v_rule.version, v_rule.b - v_strangers);
            v_b := cardinality(v_known);
        end if;
        if v_rooms[case when v_head.line = v_head.ga then v_a else v_b end] <= 0 then
            v_open := array_remove(v_open, v_head.line);
        elsif v_rooms[v_a] > 0 and v_rooms[v_b] > 0 then
            return query
                update rt.live r set slot = true, st = 'q', line = null
                where r.id = (
                    select c.id from (
                        select x.id, x.st from rt.live x where x.id = v_head.id offset 0 for no key update skip locked) c
                    where c.st = 'b')
                returning r.id, r.tenant;
            if found then
                v_rooms[v_a] := v_rooms[v_a] - 1;
                v_rooms[v_b] := v_rooms[v_b] - 1;
                update rt.live r set line = v_head.line where r.id = (
                    select c.id from (
                        select x.id, x.line from rt.live x
                        where x.ga = v_head.ga and coalesce(x.gb, 0) = v_head.gb and x.gv = v_rule.version and x.st = 'b'
                        order by x.qk limit 1 for no key update skip locked) c
                    where c.line is null);
            else
                v_busy := v_busy || v_head.id;
            end if;
        else
            update rt.live r set line = case when v_head.line = v_head.ga then v_head.gb else v_head.ga end
                where r.id = (
                    select c.id from (
                        select x.id, x.st from rt.live x where x.id = v_head.id offset 0 for no key update skip locked) c
                    where c.st = 'b');
            if not found then v_busy := v_busy || v_head.id; end if;
        end if;
    end loop;
    run := null; tenant := null;
    return next;
end $$;

-- Let the oldest blocked runs of these pairs of gates through, as far as there is room (a gate alone is a pair with null).
-- Called after the commit that made room or put a run before them. A row of nulls: there is more to do, call again.
-- One lock per gate, or per workflow if it has two limits, taken in one order: two granters never count at once.
create function rt.grant_v1(p_ga bigint[], p_gb bigint[]) returns table (run uuid, tenant int) language plpgsql as $$
#variable_conflict use_column
declare
    v_wf int; v_ga bigint[]; v_gb bigint[]; v_rule rt.gate_rule%rowtype;
begin
    -- Each workflow with its own pairs: its limits say nothing about the gates of another.
    for v_wf, v_ga, v_gb in
        select x.wf, array_agg(x.ga), array_agg(x.gb) from (
            select coalesce((select r.wf from rt.live r where r.ga = u.ga and r.st = 'b' limit 1),
                            (select r.wf from rt.live r where r.line = u.gb limit 1)) as wf, u.ga, u.gb
            from unnest(p_ga, p_gb) u(ga, gb)) x
        where x.wf is not null group by x.wf order by x.wf
    loop
        select g.* into v_rule from rt.gate_rule g where g.wf = v_wf;
        if v_rule.b is not null then
            return query select x.run, x.tenant from rt.grant_two_v1(v_wf, v_ga, v_gb) x;
        elsif v_rule.a is not null then
            return query select x.run, x.tenant from rt.grant_one_v1(v_wf, v_ga) x;
        end if;
    end loop;
end $$;

-- Pairs of gates with blocked runs, behind (p_ga, p_gb), by a loose scan: the net for a grant that was never called.
create function rt.blocked_v1(p_ga bigint, p_gb bigint, p_limit int) returns table (ga bigint, gb bigint) language sql stable as $$
    with recursive p as (
        (select r.ga, coalesce(r.gb, 0) as gb, 1 as n from rt.live r
         where r.st = 'b' and (r.ga, coalesce(r.gb, 0)) > (p_ga, p_gb) order by r.ga, coalesce(r.gb, 0) limit 1)
        union all
        select x.ga, x.gb, p.n + 1 from p cross join lateral (
            select r.ga, coalesce(r.gb, 0) as gb from rt.live r
            where r.st = 'b' and (r.ga, coalesce(r.gb, 0)) > (p.ga, p.gb) order by r.ga, coalesce(r.gb, 0) limit 1) x
        where p.n < p_limit
    )
    select p.ga, nullif(p.gb, 0) from p
$$;

-- Blocked runs, some of each workflow behind (p_wf, p_version), that are not before the gates of now (or before none, as there
-- were limits when they were to be claimed): by a loose scan, too. A row for each workflow and version that was looked at, in
-- order; without runs where there is nothing to do.
create function rt.outdated_v1(p_wf int, p_version bigint, p_limit int, p_each int)
returns table (wf int, version bigint, tenant int, runs uuid[]) language sql stable as $$
    with recursive p as (
        (select r.wf, r.gv, r.tenant, 1 as n from rt.live r
         where r.st = 'b' and r.wf > 0 and (r.wf, r.gv) > (p_wf, p_version) order by r.wf, r.gv limit 1)
        union all
        select x.wf, x.gv, x.tenant, p.n + 1 from p cross join lateral (
            select r.wf, r.gv, r.tenant from rt.live r
            where r.st = 'b' and r.wf > 0 and (r.wf, r.gv) > (p.wf, p.gv) order by r.wf, r.gv limit 1) x
        where p.n < p_limit
    )
    select p.wf, p.gv, p.tenant, array(
        select r.id from rt.live r
        where r.st = 'b' and r.wf > 0 and r.wf = p.wf and r.gv = p.gv
          and (p.gv = 0 or p.gv <> coalesce((select g.version from rt.gate_rule g where g.wf = p.wf), 0))
        limit p_each)
    from p order by p.wf, p.gv
$$;

-- Put runs that nobody holds before other gates. They keep their place in time, and no slot.
create function rt.regate_v1(p_run uuid[], p_gv bigint[], p_ga bigint[], p_gb bigint[])
returns table (run uuid, ga bigint, gb bigint, was_ga bigint, was_gb bigint) language sql as $$
    with l as materialized (
        select r.id, r.ga, r.gb from rt.live r
        where r.id = any (p_run) and r.st in ('q', 'b') order by r.id for no key update skip locked
    )
    update rt.live r set gv = u.gv, ga = u.ga, gb = u.gb, line = null, slot = false, st = rt.ready_st(u.ga, false)
    from unnest(p_run, p_gv, p_ga, p_gb) u(run, gv, ga, gb), l
    where r.id = any (p_run) and r.id = u.run and l.id = r.id and (r.gv <> u.gv or (r.st = 'b' and r.gv = 0))
    returning r.id, r.ga, r.gb, l.ga, l.gb
$$;
