-- What there is to do, at a glance: for the schedulers' idle duties, and for whoever watches the engine.

-- Whether there is anything to do: timers and cron triggers that are due, runs whose own time is over, marks, runs before gates,
-- runs in the queue, runs of owners that are dead or unknown, waits that look back, turns of bulk jobs. First entries of indexes.
create function rt.glance_v1(
    out due bool, out cron bool, out overdue bool, out marked bool, out blocked bool, out queued bool, out orphaned bool, out arming bool,
    out jobs bool
) language plpgsql stable as $$
declare
    v_now timestamptz := rt.now();   -- a variable: a volatile function in a condition keeps it from the index
begin
    due := exists (select from generate_series(0, 63) p(n) cross join lateral (
        select from rt.wait w where w.part = p.n::smallint and w.due_at <= v_now order by w.due_at limit 1) d);
    cron := rt.cron_is_due_v1();
    overdue := exists (select from rt.live r where r.deadline <= v_now);
    marked := exists (select from rt.mark m where m.created_at <= v_now);
    blocked := exists (select from rt.live r where r.st = 'b');
    queued := exists (select from rt.live r where r.st = 'q' and not r.pooled) or exists (select from rt.live r where r.st = 'q' and r.pooled);
    orphaned := exists (
        select from rt.live r where r.owner is not null and not exists (select from rt.owner o where o.id = r.owner and not o.dead));
    arming := exists (select from rt.wait w where w.arming);
    jobs := exists (select from rt.bulk_job j where j.ended_at is null and j.turn_at <= v_now);
end $$;

-- What waits, for whoever watches: how long the oldest run that anybody may take has waited and how many do, counted up to p_most;
-- the same of those that only workers serve; how long the oldest due timer or deadline is due, and the oldest mark is there. In
-- milliseconds, 0: nothing. First entries of indexes, and p_most of the queues': the cost does not grow with runs that rest.
create function rt.backlog_v1(
    p_most int, out queued int, out queue_ms bigint, out pooled int, out pool_ms bigint, out overdue_ms bigint, out mark_ms bigint
) language plpgsql stable as $$
#variable_conflict use_column
declare
    v_now timestamptz := rt.now();   -- a variable: a volatile function in a condition keeps it from the index
begin
    with t as materialized (select x.tenant, count(*) over () as n from rt.ready_tenants_v1() x(tenant))
    select count(*), coalesce(max(rt.ms(v_now) - rt.ms(q.since)), 0) into queued, queue_ms
    from (select q.since from t cross join lateral (
        select r.qk + r.prio * interval '1 second' as since from rt.live r where r.tenant = t.tenant and r.st = 'q' and not r.pooled
        order by r.qk limit greatest(1, p_most / t.n)) q limit p_most) q;
    with recursive t as (
        (select r.wf from rt.live r where r.st = 'q' and r.pooled order by r.wf limit 1)
        union all
        select (select r.wf from rt.live r where r.st = 'q' and r.pooled and r.wf > t.wf order by r.wf limit 1) from t where t.wf is not null
    ), w as materialized (select t.wf, count(*) over () as n from t where t.wf is not null)
    select count(*), coalesce(max(rt.ms(v_now) - rt.ms(q.since)), 0) into pooled, pool_ms
    from (select q.since from w cross join lateral (
        select r.qk + r.prio * interval '1 second' as since from rt.live r where r.wf = w.wf and r.st = 'q' and r.pooled
        order by r.qk limit greatest(1, p_most / w.n)) q limit p_most) q;
    overdue_ms := (
        select max(rt.ms(v_now) - rt.ms(d.at)) from (
            select d.due_at as at from generate_series(0, 63) p(n) cross join lateral (
                select w.due_at from rt.wait w where w.part = p.n::smallint and w.due_at <= v_now and not w.arming and w.kind <> 'p'
                order by w.due_at limit 1) d
            union all
            (select r.deadline from rt.live r where r.deadline <= v_now order by r.deadline limit 1)) d);
    mark_ms := (select rt.ms(v_now) - rt.ms(m.created_at) from rt.mark m where m.created_at <= v_now order by m.created_at limit 1);
    queue_ms := greatest(queue_ms, 0);
    pool_ms := greatest(pool_ms, 0);
    overdue_ms := greatest(coalesce(overdue_ms, 0), 0);
    mark_ms := coalesce(mark_ms, 0);
end $$;
