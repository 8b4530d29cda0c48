-- What is committed by itself: the same as with others, without what a batch needs.

-- The end of a run, completed or failed, as `commit_steps_v1` brings it: where nothing of the run is open, nobody waits for it and
-- nothing listens for its end. No row otherwise, and nothing is changed: `commit_steps_v1` says what it is. The row is locked before
-- anything is looked for, so that a wait for this run is seen, or sees its end.
create function rt.commit_end_v1(
    p_owner bigint, p_run uuid, p_epoch bigint, p_rev bigint, p_steps int, p_bytes int, p_uses int, p_status text, p_output text, p_error text
) returns table (run uuid, result text, mail int, st text, ga bigint) language plpgsql as $$
#variable_conflict use_column
begin
    perform from rt.live l where l.id = p_run and (l.owner = p_owner) is true and l.epoch = p_epoch and l.rev = p_rev
        for update skip locked;
    if not found then return; end if;
    return query
        with d as (
            delete from rt.live r
            where r.id = p_run
              and not exists (select from rt.wait w where w.run = p_run offset 0)
              and not exists (select from rt.wait w where w.child = p_run offset 0)
              and not exists (select from rt.defs_version d where d.tenant = r.tenant and p_status = any (d.hears) offset 0)
              and not exists (select from rt.wait w
                              where w.tenant = r.tenant and w.name_h = rt.run_event_hash(p_status) and w.kind in ('e', 'x') offset 0)
            returning r.*
        ), e as (
            insert into rt.ends (tenant, run, status, started, ended, output, error, epoch, rev, steps, bytes, att)
            select d.tenant, d.id, p_status, d.started, rt.now(), p_output, p_error, d.epoch, d.rev + 1,
                   d.steps + p_steps, d.bytes + p_bytes, d.att
            from d
        ), x as (
            insert into rt.usage_delta (tenant, wf, day, kind, n)
            select d.tenant, d.wf, (rt.now() at time zone 'UTC')::date, 's', d.uses + p_uses from d where d.uses + p_uses > 0
        )
        select d.id, 'd', d.mail, d.st::text, d.ga from d;
end $$;
