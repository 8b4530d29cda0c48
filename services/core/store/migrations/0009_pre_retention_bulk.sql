-- Retention (engine section 11) and bulk jobs (engine section 3, `POST …/runs/bulk`).

-- What is old is found by its age, not by reading what is kept.
create index ends_ended on rt.ends (ended, run);
create index usage_day on rt.usage (day);
create index event_ids_event on rt.event_ids (event);

-- When old rows of a tenant are looked for next, and where a pass over them stands: any scheduler goes on from there.
create table rt.prune (
    tenant   int primary key references rt.tenant (id) on delete cascade,
    next_at  timestamptz not null,
    stage    text not null default 'runs' check (stage in ('runs', 'events', 'usage', 'jobs')),
    after_at timestamptz,                          -- what was looked at: ends up to (after_at, after_id), events up to after_id
    after_id uuid
);
create index prune_next on rt.prune (next_at);

-- Whoever prunes holds this row, and leaves in it when the next batch may go: one pace for all tenants and schedulers.
create table rt.prune_pace (
    one     bool primary key default true check (one),
    free_at timestamptz not null default '-infinity'
);
insert into rt.prune_pace default values;

-- The next time of day, in UTC, at which a tenant's pass begins: tenants are spread over the day.
create function rt.prune_slot(p_tenant int, p_now timestamptz) returns timestamptz language sql immutable parallel safe as $$
    select s.at + case when s.at <= p_now then interval '1 day' else interval '0' end
    from (select date_trunc('day', p_now, 'UTC') + ((hashint4(p_tenant) & 2147483647) % 86400) * interval '1 second' as at) s
$$;

-- Whose turn it is, held until the end of the transaction; a tenant that is new gets its first slot.
-- No row: another scheduler is at it. No tenant: nothing to do before wait_ms have passed.
create function rt.take_prune_v1()
returns table (wait_ms bigint, tenant int, stage text, after_at timestamptz, after_id uuid, now timestamptz) language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := rt.now();   -- a variable: a volatile function in a condition keeps it from the index
    v_free timestamptz;
    v_next timestamptz;
begin
    select p.free_at into v_free from rt.prune_pace p for no key update skip locked;
    if not found then return; end if;
    if v_free > v_now then
        return query select ceil(extract(epoch from v_free - v_now) * 1000)::bigint, null::int, null, null::timestamptz, null::uuid, v_now;
        return;
    end if;
    return query select 0::bigint, p.tenant, p.stage, p.after_at, p.after_id, v_now
        from rt.prune p where p.next_at <= v_now order by p.next_at limit 1;
    if found then return; end if;
    insert into rt.prune (tenant, next_at)
        select t.id, rt.prune_slot(t.id, v_now) from rt.tenant t where not exists (select from rt.prune p where p.tenant = t.id)
        on conflict do nothing;
    select min(p.next_at) into v_next from rt.prune p;
    return query select coalesce(ceil(extract(epoch from v_next - v_now) * 1000), 60000)::bigint, null::int, null, null::timestamptz,
                        null::uuid, v_now;
end $$;

-- A job over many runs. It is worked in batches; the cursor moves in the transaction that does a batch, so no run is done twice.
create table rt.bulk_job (
    id         uuid primary key,
    tenant     int not null,
    project    int not null,
    action     text not null check (action in ('cancel', 'retry', 'replay')),
    filter     text not null,                      -- JSON
    print      text not null,                      -- what was asked for, as a digest
    state      text not null default 'queued' check (state in ('queued', 'running', 'completed', 'failed', 'stopped')),
    cursor     uuid,                               -- the last run that was looked at; newer ones come first
    total      bigint not null,
    partial    bool not null,                      -- the count stopped at total
    succeeded  bigint not null default 0,
    skipped    bigint not null default 0,
    failed     bigint not null default 0,
    faults     text not null default '[]',         -- JSON: why the first few of those failed
    error      text,                               -- JSON: why the job gave up
    trace      text,
    created_at timestamptz not null default rt.now(),
    ended_at   timestamptz,
    turn_at    timestamptz not null,               -- the longest waiting is next; in the future: somebody is at it
    check ((state in ('queued', 'running')) = (ended_at is null))
);
-- Asked for twice by mistake, a replay would be done twice.
create unique index bulk_job_active on rt.bulk_job (tenant, project, action, print) where ended_at is null;
create index bulk_job_turn on rt.bulk_job (turn_at) where ended_at is null;
create index bulk_job_page on rt.bulk_job (project, id);
create index bulk_job_ended on rt.bulk_job (tenant, ended_at) where ended_at is not null;
