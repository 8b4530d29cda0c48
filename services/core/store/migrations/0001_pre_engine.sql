-- The engine's own tables: small rows, no payloads, read for all tenants at once. Everything here is in schema `rt`.
-- Rules that must always hold are constraints; what a row means is said once, beside it.

create schema rt;

-- The only clock of the engine. `rt.clock_offset_ms` exists so that tests can move time; it is unset in production.
create function rt.now() returns timestamptz language sql volatile parallel safe as
$$ select clock_timestamp() + coalesce(nullif(current_setting('rt.clock_offset_ms', true), ''), '0')::bigint * interval '1 millisecond' $$;

-- Stable, as what it is made of: it would not become part of the statements that use it otherwise, and each call cost ten times as much.
create function rt.ms(t timestamptz) returns bigint language sql stable parallel safe as
$$ select (extract(epoch from t) * 1000)::bigint $$;

-- A run's partition of the 64: from its id, so that every process computes the same.
create function rt.part_of(id uuid) returns smallint language sql immutable parallel safe as
$$ select (get_byte(uuid_send(id), 15) & 63)::smallint $$;

create table rt.meta (one bool primary key default true check (one), min_code int not null);
insert into rt.meta (min_code) values (1);

create table rt.tenant (
    id          int generated always as identity primary key,
    slug        text not null unique check (slug ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    name        text not null default '',
    created_at  timestamptz not null default rt.now(),
    disabled_at timestamptz
);

create table rt.token (
    id         uuid primary key,
    tenant     int not null references rt.tenant (id),
    name       text not null,
    hash       bytea not null unique check (octet_length(hash) = 32),  -- SHA-256 of the token; the token itself is shown once
    abilities  text[] not null,
    created_at timestamptz not null default rt.now(),
    expires_at timestamptz,
    revoked_at timestamptz
);

create table rt.audit (
    id       bigint generated always as identity primary key,
    tenant   int not null,
    actor    text not null,
    action   text not null,
    subject  text not null default '',
    at       timestamptz not null default rt.now()
);

-- Bumped in the transaction of every change of a tenant's definitions: caches compare it.
-- `hears`: the statuses of ended runs whose events start some workflow, so such ends leave a mark.
create table rt.defs_version (
    tenant int primary key references rt.tenant (id), v bigint not null default 0, hears text[] not null default '{}'
);

-- A process that may hold runs. Its heartbeat is the lease of all of them at once. Others see that it lives by `beats`, which
-- only rises, and measure its silence by clocks of their own: this one may be set.
create table rt.owner (
    id      bigint primary key,                    -- random 63 bits per process start: never reused, not even after a restore
    kind    text not null,
    node    text not null,
    process uuid,                                  -- what its supervisor calls its process, never reused; null: has none that does
    boot_at timestamptz not null default rt.now(),
    beat_at timestamptz not null default rt.now(),
    beats   bigint not null default 0,
    dead    bool not null default false
) with (fillfactor = 50);
create index owner_process on rt.owner (process) where process is not null;

-- The 64 partitions of timers and recovery; ownership is an economy, never needed for correctness.
create table rt.part (n smallint primary key check (n between 0 and 63), owner bigint, epoch bigint not null default 0);
insert into rt.part (n) select generate_series(0, 63);

-- One row per active run: its place in the queue, its lease and its fences. Gone when the run ends.
-- st: q queued, b blocked for a slot, d delayed (backoff, later start), r running, s sleeping, w waiting, p parked for a worker
create table rt.live (
    id       uuid primary key,
    tenant   int not null,
    wf       int not null,
    st       "char" not null check (st in ('q', 'b', 'd', 'r', 's', 'w', 'p')),
    prio     smallint not null default 0,
    owner    bigint,
    epoch    bigint not null default 0,            -- moved by whoever ends, takes or re-queues the run
    rev      bigint not null default 0,            -- moved only by the holder of the lease
    mail     int not null default 0,               -- moved by whoever delivers an event, a timer or a child's end
    qk       timestamptz,                          -- place in the queue
    gv       bigint not null default 0,            -- the version of rt.gate_rule by which its gates were found; 0: no gates
    ga       bigint,
    gb       bigint,
    slot     bool not null default false,
    line     bigint,                               -- the gate before which it stands for all of its pair (0006)
    steps    int not null default 0,               -- places given in step_order
    bytes    int not null default 0,               -- memoized state
    att      int not null default 0,               -- attempt rows written, ever
    att_from int not null default 0,               -- those before the last retry of the run do not count
    fn_att   smallint not null default 0,          -- failed function attempts since the last progress
    max_att  smallint not null check (max_att between 1 and 21),
    nd       smallint not null default 0,          -- non-determinism strikes in a row
    uses     int not null default 0,               -- steps executed that are not counted in rt.usage_delta yet
    parent   uuid,
    affinity uuid,                                 -- the worker's session that executes it, or is to
    given    bigint not null default 0,            -- the epoch under which that session was given it, or was to be
    pooled   bool not null default false,          -- of a project that workers alone serve: only who has one of them takes it
    started  timestamptz,
    taken    timestamptz,                          -- when it was last leased from the queue
    deadline timestamptz not null,
    check ((st = 'r') = (owner is not null)),
    check ((st in ('q', 'b')) = (qk is not null)),
    check (not slot or ga is not null),
    check (gb is null or ga is not null),
    check ((gv = 0) = (ga is null)),
    check (line is null or (st = 'b' and line in (ga, gb)))
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
-- A step in steady state changes only rev, steps, bytes, fn_att, att, nd, uses: none is indexed, so the update is HOT.
create index live_queue on rt.live (tenant, qk) where st = 'q' and not pooled;
create index live_pool on rt.live (wf, qk) where st = 'q' and pooled;
create index live_owner on rt.live (owner) where owner is not null;
create index live_blocked on rt.live (ga, (coalesce(gb, 0)), gv, qk) where st = 'b';
create index live_blocked_wf on rt.live (wf, gv) where st = 'b' and wf > 0;  -- so that nobody uses it who does not ask for wf
create index live_parked on rt.live (wf) where st = 'p';
create index live_line on rt.live (line, gv, qk) where line is not null;
create index live_slot_a on rt.live (ga) where slot;
create index live_slot_b on rt.live (gb) where slot and gb is not null;
create index live_deadline on rt.live (deadline);
create index live_parent on rt.live (parent) where parent is not null;

-- The concurrency limits of a workflow as they are now, in the order of their keys; none: no row, or nulls. The version moves
-- with the keys, never with the numbers: a run whose gates were found by another version is put before those of now.
create table rt.gate_rule (
    wf      int primary key,
    tenant  int not null,
    keys    bigint not null,                       -- a hash of the keys: whether they are others
    turn    bigint not null default 1 check (turn > 0),
    version bigint not null generated always as (case when a is null then 0 else turn end) stored,
    a       int,
    b       int,
    settled bool not null default false,           -- no run is leased that has not the gates of this version
    check (b is null or a is not null)
);

-- A wait and a timer are one row: whoever deletes it under the run's lock wins.
-- kind: s sleep, e event, c child, b backoff, d later start, x cancel_on, p park
create table rt.wait (
    id         uuid primary key,
    run        uuid not null,
    tenant     int not null,
    part       smallint not null generated always as (rt.part_of(run)) stored,
    kind       "char" not null check (kind in ('s', 'e', 'c', 'b', 'd', 'x', 'p')),
    seq        int not null default 0,
    sid        text check (octet_length(sid) <= 255),
    name       text,
    fields     text,                               -- the op's own fields as JSON, for the timeline
    event      text,
    name_h     bigint,
    path_h     bigint,                             -- 0: found by the name, with val_h 0 to be judged by cond, with 1 in any case
    val_h      bigint,
    cond       text,                               -- decides; name_h, path_h and val_h only find
    child      uuid,
    due_at     timestamptz,
    arming     bool not null default false,
    looked_at  timestamptz,                        -- since when a scheduler looks back for it, where its executor did not
    since      timestamptz,
    created_at timestamptz not null default rt.now(),
    check (kind not in ('s', 'e', 'c', 'b') or sid is not null),
    check ((kind in ('e', 'x')) = (event is not null)),
    check (event is null or (name_h is not null and path_h is not null and val_h is not null)),
    check ((kind = 'c') = (child is not null)),
    check (due_at is not null or kind in ('x', 'e', 'c'))
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index wait_due on rt.wait (part, due_at) where due_at is not null;
create index wait_match on rt.wait (tenant, name_h, path_h, val_h) where kind in ('e', 'x');
create index wait_child on rt.wait (child) where child is not null;
create index wait_arming on rt.wait (tenant, created_at) where arming;
create unique index wait_step on rt.wait (run, sid);  -- also for the waits of a run; those without a step are not unique

-- Which paths of an event to look at when it arrives: those of open waits, and for a while of waits that were. `idle` says
-- that no wait was open on it when somebody looked; who opens one takes it back (see paths_v1).
create table rt.wait_path (
    tenant int, name_h bigint, path text,
    path_h bigint not null,
    idle   bool not null default false,
    primary key (tenant, name_h, path)
);

-- Effects on another run, or on the world, that must follow a commit: written in it, applied right after, swept if not.
create table rt.mark (
    id         bigint generated always as identity primary key,
    tenant     int not null,
    target     uuid,
    kind       text not null,
    body       text not null default '',
    created_at timestamptz not null default rt.now()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index mark_age on rt.mark (created_at);

-- Accepted event ids. src: u = the sender's, q = the queue bridge's, w = a workflow's: no sender can suppress the engine's own.
create table rt.event_ids (
    tenant    int not null,
    src       "char" not null,
    eid       text collate "C" not null check (octet_length(eid) between 1 and 600),
    event     uuid not null,
    accept_id uuid not null,
    at        timestamptz not null default rt.now(),
    primary key (tenant, src, eid)
);

create table rt.idem (
    wf  int not null,
    key text collate "C" not null,
    run uuid not null,
    primary key (wf, key)
);
create index idem_run on rt.idem (run);

create table rt.usage_delta (
    id bigint generated always as identity primary key,
    tenant int not null, wf int not null, day date not null, kind "char" not null, n bigint not null
);
