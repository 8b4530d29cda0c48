-- What a tenant sees: partitions, living in the tenant's own schema, of parents that one statement can write for all tenants.
-- Keys end with the tenant: within a partition it is always the same, and statements over one tenant's table need not name it.

create sequence rt.project_id as int;
create sequence rt.workflow_id as int;

create table rt.projects (
    tenant        int not null,
    id            int not null default nextval('rt.project_id'),
    slug          text not null check (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    name          text not null default '',
    trigger_type  text not null default 'workflow',
    queue_stream  text,
    endpoint_url  text,
    signing_key   bytea,                           -- sealed; never in a listing
    previous_key  bytea,
    rotated_at    timestamptz,
    key_print     text,                            -- fingerprint of the current key
    defs_file     text,
    defs_hash     text,
    defs_source   text,
    synced_at     timestamptz,
    sync_status   text,                            -- JSON: {"ok", "error"?, "warnings"?}
    created_at    timestamptz not null default rt.now(),
    primary key (id, tenant),
    unique (slug, tenant)
) partition by list (tenant);

create table rt.workflows (
    tenant      int not null,
    id          int not null default nextval('rt.workflow_id'),
    project     int not null,
    name        text not null,
    definition  text not null,                     -- canonical JSON of one definition
    is_active   bool not null default true,
    archived_at timestamptz,
    created_at  timestamptz not null default rt.now(),
    updated_at  timestamptz not null default rt.now(),
    primary key (id, tenant),
    unique (project, name, tenant)
) partition by list (tenant);

-- Projects whose deletion was asked for: nothing of theirs starts or goes on again (start_v1, retry_v1). The row stays when the
-- project is gone, for a transaction that has read the definitions before: ids are not used again.
create table rt.deleted_project (
    project int primary key,
    tenant  int not null,
    at      timestamptz not null default rt.now()
);

-- Projects that workers alone serve: they have no endpoint, and a worker has declared their workflows. Their runs wait, `pooled`,
-- until an executor has a worker that takes them. It changes with the project's own row, under its lock (set_pool_v1).
create table rt.pool (project int primary key, tenant int not null);

create table rt.runs (
    tenant      int not null,
    id          uuid not null,
    wf          int not null,
    project     int not null,
    created_at  timestamptz not null,
    source      text not null check (source in ('api', 'event', 'cron', 'queue', 'invoke', 'replay')),
    event       uuid not null,
    event_name  text not null,
    event_ts    bigint not null,
    event_data  text,                              -- null: the event's own row has it
    idem        text,
    test        bool not null default false,
    parent      uuid,
    replay_of   uuid,
    tags        jsonb not null default '[]',
    version     text not null default '',
    trace       text,                              -- of the request that started it: [tracestate ]traceparent
    retries     int not null default 0,            -- by which who watches it knows that steps have gone
    primary key (id, tenant)
) partition by list (tenant);
create index runs_event on rt.runs (event);
create index runs_wf on rt.runs (wf, id);

create table rt.ends (
    tenant   int not null,
    run      uuid not null,
    status   text not null check (status in ('completed', 'failed', 'cancelled', 'timed_out')),
    started  timestamptz,
    ended    timestamptz not null,
    output   text,
    error    text,
    epoch    bigint not null,
    rev      bigint not null,
    steps    int not null,
    bytes    int not null,
    att      int not null,
    primary key (run, tenant)
) partition by list (tenant);
create index ends_status on rt.ends (status, run);

-- A memoized step. status: c completed, f failed for good, x cancelled with its run (not memoized).
-- kind: r run, s sleep, e wait_for_event, i invoke, n send_event
create table rt.steps (
    tenant   int not null,
    run      uuid not null,
    sid      text not null check (octet_length(sid) between 1 and 255),
    seq      int not null,
    name     text not null,
    kind     "char" not null check (kind in ('r', 's', 'e', 'i', 'n')),
    status   "char" not null check (status in ('c', 'f', 'x')),
    output   text,
    error    text,
    input    text,
    event    uuid,
    child    uuid,
    att      int not null default 1,
    t0       timestamptz not null,
    t1       timestamptz not null,
    primary key (run, sid, tenant)
) partition by list (tenant);

-- Failed attempts, of a step (sid) or of the function (sid null). n counts within the run, k within the step since the last retry.
-- epoch, inv, op: which op of which invocation a worker's stream told it by, so that the same report is known when it comes again.
create table rt.attempts (
    tenant int not null,
    run    uuid not null,
    n      int not null,
    sid    text,
    k      int not null,
    error  text not null,
    note   text,
    t0     timestamptz not null,
    t1     timestamptz not null,
    epoch  bigint,
    inv    int,
    op     int,
    primary key (run, n, tenant)
) partition by list (tenant);

create table rt.events (
    tenant      int not null,
    id          uuid not null,
    name        text not null,
    data        text not null,
    ts          bigint not null,
    event_id    text,
    source      text not null check (source in ('api', 'workflow', 'queue', 'platform')),
    project     int,
    run         uuid,                              -- the run that sent it
    test        bool not null default false,
    effects     text not null,                     -- JSON: {"runs": [...], "resumed": n, "cancelled": n, "skipped": [...]}
    received_at timestamptz not null default rt.now(),
    trace       text,
    odd_id      bool not null default false,       -- the time in its id is not about when it was received
    primary key (id, tenant)
) partition by list (tenant);
create index events_name on rt.events (name text_pattern_ops, id);
create index events_odd on rt.events (name, received_at) where odd_id;

create table rt.usage (
    tenant int not null, wf int not null, day date not null, kind "char" not null, n bigint not null,
    primary key (wf, day, kind, tenant)
) partition by list (tenant);

-- Adds what a tenant needs; safe to call again. ATTACH (not PARTITION OF) so that writers of other tenants go on.
create function rt.create_tenant(p_slug text, p_name text) returns int language plpgsql as $$
#variable_conflict use_column
declare
    v_id int;
    v_schema text;
    v_table text;
begin
    insert into rt.tenant (slug, name) values (p_slug, p_name) on conflict (slug) do nothing;
    select id into v_id from rt.tenant where slug = p_slug;
    v_schema := 't_' || v_id;
    execute format('create schema if not exists %I', v_schema);
    foreach v_table in array array['projects', 'workflows', 'runs', 'ends', 'steps', 'attempts', 'events', 'usage'] loop
        if to_regclass(format('%I.%I', v_schema, v_table)) is null then
            execute format('create table %I.%I (like rt.%I including all, check (tenant = %s))', v_schema, v_table, v_table, v_id);
            execute format('alter table rt.%I attach partition %I.%I for values in (%s)', v_table, v_schema, v_table, v_id);
        end if;
    end loop;
    insert into rt.defs_version (tenant) values (v_id) on conflict do nothing;
    return v_id;
end $$;
