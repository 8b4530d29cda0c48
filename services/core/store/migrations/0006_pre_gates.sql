-- Concurrency gates (rulings C16). The truth is `rt.live.slot`: nobody counts into a row, so nothing drifts.
-- A limited run waits as `b`; only grant_v1 lets it through, so a limit is never exceeded by construction.

-- The limit at a place of a workflow's definition as it is now; null: not limited (any more).
create function rt.limit_of(p_tenant int, p_wf int, p_place int) returns int language sql stable as $$
    select (w.definition::jsonb #>> array['concurrency', p_place::text, 'limit'])::int
    from rt.workflows w where w.tenant = p_tenant and w.id = p_wf
$$;

-- Let the oldest blocked runs of these gates through, as far as there is room. Called after the commit that made room.
create function rt.grant_v1(p_gates bigint[]) returns table (run uuid, tenant int) language plpgsql as $$
#variable_conflict use_column
declare
    v_gate record; v_run record; v_room int; v_a int; v_b int; v_full bigint[]; v_read int;
begin
    -- One lock per gate, or per workflow if it has two limits, taken in one order: two granters never count at once. A gate's
    -- lock goes with a share of its workflow's: limits are edited while runs of before the edit, with one gate, are still there.
    for v_gate in
        select distinct r.tenant, r.wf, case when r.gb is null then r.ga end as ga, r.gb is not null as two
        from rt.live r
        where r.st = 'b' and (r.ga = any (p_gates) or r.gb = any (p_gates))
        order by r.wf, two desc, ga
    loop
        if v_gate.two then
            perform pg_advisory_xact_lock(hashint8(v_gate.wf), 1);
        else
            perform pg_advisory_xact_lock_shared(hashint8(v_gate.wf), 1);
            perform pg_advisory_xact_lock(hashint8(v_gate.ga), 2);
        end if;
        v_a := rt.limit_of(v_gate.tenant, v_gate.wf, 0);
        if not v_gate.two then
            v_room := coalesce(v_a, 1000000) - (select count(*) from rt.live r where r.ga = v_gate.ga and r.slot);
            return query
                update rt.live r set slot = true, st = 'q'
                where r.id = any (array(
                    select c.id from rt.live c where c.ga = v_gate.ga and c.gb is null and c.st = 'b'
                    order by c.qk limit least(greatest(v_room, 0), 1000) for no key update skip locked))
                returning r.id, r.tenant;
        else
            v_b := rt.limit_of(v_gate.tenant, v_gate.wf, 1);
            v_full := '{}';
            -- Runs before a gate that is full are passed over, however many and however old: they hold up no other.
            for v_round in 1..10 loop
                v_read := 0;
                for v_run in
                    select r.id, r.ga, r.gb from rt.live r
                    where r.wf = v_gate.wf and r.st = 'b' and r.gb is not null and (r.ga = any (p_gates) or r.gb = any (p_gates))
                      and r.ga <> all (v_full) and r.gb <> all (v_full)
                    order by r.qk limit 1000 for no key update skip locked
                loop
                    v_read := v_read + 1;
                    if v_run.ga = any (v_full) or v_run.gb = any (v_full) then
                        continue;
                    elsif (select count(*) from rt.live r where r.ga = v_run.ga and r.slot) >= coalesce(v_a, 1000000) then
                        v_full := v_full || v_run.ga;
                    elsif (select count(*) from rt.live r where r.gb = v_run.gb and r.slot) >= coalesce(v_b, 1000000) then
                        v_full := v_full || v_run.gb;
                    else
                        return query update rt.live r set slot = true, st = 'q' where r.id = v_run.id returning r.id, r.tenant;
                    end if;
                end loop;
                exit when v_read < 1000;
            end loop;
        end if;
    end loop;
end $$;

-- Gates with blocked runs, from p_after on, by a loose scan: the net for a grant that was never called.
create function rt.blocked_gates_v1(p_after bigint, p_limit int) returns setof bigint language sql stable as $$
    with recursive g as (
        (select r.ga, 1 as n from rt.live r where r.st = 'b' and r.ga > p_after order by r.ga limit 1)
        union all
        select (select r.ga from rt.live r where r.st = 'b' and r.ga > g.ga order by r.ga limit 1), g.n + 1
        from g where g.ga is not null and g.n < p_limit
    )
    select ga from g where ga is not null
$$;
