-- Run control of ended runs.

-- Let an ended run go on from where it stopped (engine section 3, retry). Answers nothing when it has not failed, been
-- cancelled or timed out, or its project is being deleted. The fences go on from where the run ended (rulings C2): a holder from its earlier life stays fenced.
create function rt.retry_v1(p_tenant int, p_run uuid, p_max_att smallint, p_timeout_ms bigint, p_gv bigint, p_ga bigint, p_gb bigint)
returns table (steps int) language plpgsql as $$
#variable_conflict use_column
declare
    v_end rt.ends%rowtype; v_run rt.runs%rowtype;
begin
    lock table rt.live in row exclusive mode;      -- before the question, as start_v1 says
    select * into v_run from rt.runs r where r.tenant = p_tenant and r.id = p_run;
    if exists (select from rt.deleted_project d where d.project = v_run.project) then return; end if;
    delete from rt.ends e where e.tenant = p_tenant and e.run = p_run and e.status <> 'completed' returning * into v_end;
    if not found then return; end if;
    update rt.runs r set retries = r.retries + 1 where r.tenant = p_tenant and r.id = p_run;
    -- What was open starts anew. A failure that a later step followed was caught and compensated: it stays.
    delete from rt.steps s where s.tenant = p_tenant and s.run = p_run and (s.status = 'x' or (s.status = 'f' and not exists (
        select from rt.steps l where l.tenant = p_tenant and l.run = p_run and l.seq > s.seq and l.status in ('c', 'f'))));
    return query
        insert into rt.live (id, tenant, wf, st, qk, epoch, rev, gv, ga, gb, steps, bytes, att, att_from, max_att, parent, started, deadline,
                             pooled)
        select p_run, p_tenant, v_run.wf, rt.ready_st(p_ga, false), rt.now(), v_end.epoch + 1, v_end.rev, p_gv, p_ga, p_gb, v_end.steps,
               coalesce((select sum(coalesce(octet_length(s.output), 0) + coalesce(octet_length(s.error), 0))
                         from rt.steps s where s.tenant = p_tenant and s.run = p_run), 0)::int,
               v_end.att, v_end.att, p_max_att, v_run.parent, v_end.started, rt.now() + p_timeout_ms * interval '1 millisecond',
               exists (select from rt.pool p where p.project = v_run.project)
        returning steps;
end $$;

-- Give a run that was just started the memoized steps of another, up to a place in its step order (exclusive).
create function rt.copy_steps_v1(p_tenant int, p_from uuid, p_to uuid, p_before int) returns int language plpgsql as $$
#variable_conflict use_column
declare
    v_count int; v_bytes int;
begin
    -- A moment later it is there (send_event): asked again, the caller gets it.
    if exists (select from rt.steps s where s.tenant = p_tenant and s.run = p_from and s.seq < p_before
                                        and s.kind = 'n' and s.status = 'c' and s.output is null) then
        raise serialization_failure using message = 'what a step has sent is not known yet';
    end if;
    with c as (
        insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, error, input, event, child, att, t0, t1)
        select s.tenant, p_to, s.sid, s.seq, s.name, s.kind, s.status, s.output, s.error, s.input, s.event, s.child, s.att, s.t0, s.t1
        from rt.steps s where s.tenant = p_tenant and s.run = p_from and s.status in ('c', 'f') and s.seq < p_before
        returning output, error
    )
    select count(*), coalesce(sum(coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0)), 0) into v_count, v_bytes from c;
    update rt.live r set steps = p_before, bytes = v_bytes where r.id = p_to;
    return v_count;
end $$;
