-- Who may do what (engine sections 4 and 10): users, their memberships, their tokens and sessions, and the log of it.

create table rt.users (
    id          uuid primary key,
    email       text not null check (octet_length(email) <= 254),
    email_key   text not null unique,              -- in lower case: one user an address, however it is written
    password    text,                              -- Argon2id in PHC form; null: cannot sign in
    created_at  timestamptz not null default rt.now(),
    disabled_at timestamptz
);

create table rt.membership (
    id         uuid primary key,
    tenant     int not null references rt.tenant (id),
    member     uuid not null references rt.users (id),
    role       text not null check (role in ('owner', 'admin', 'developer', 'viewer')),
    created_at timestamptz not null default rt.now(),
    unique (member, tenant)
);
create index membership_page on rt.membership (tenant, id);

-- A token without a member belongs to the installation: its tenant is the only one it has.
alter table rt.token add column member uuid references rt.users (id), add column last_used_at timestamptz;
create index token_page on rt.token (tenant, id) where revoked_at is null;
create index token_member on rt.token (member) where revoked_at is null;

create table rt.session (
    id             uuid primary key,
    member         uuid not null references rt.users (id),
    hash           bytea not null unique check (octet_length(hash) = 32),
    former_hash    bytea unique,                   -- of the secret before the last rotation: what was on its way with it still passes
    former_until   timestamptz,
    created_at     timestamptz not null default rt.now(),
    expires_at     timestamptz not null
);
create index session_member on rt.session (member);
create index session_expires on rt.session (expires_at);

-- Attempts to sign in, by a keyed digest of the address, whether or not somebody has it: one count for all replicas.
create table rt.login_window (
    key      bytea primary key,
    attempts int not null,
    since    timestamptz not null
);
create index login_window_since on rt.login_window (since);

-- Tenant 0 is the installation itself. Nothing changes a line, and only its age removes one.
create index audit_page on rt.audit (tenant, id);

create function rt.audit_stays() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' and current_setting('rt.audit_retention', true) = 'on' then return old; end if;
    raise exception 'the audit log is only appended to';
end $$;
create trigger audit_stays before update or delete on rt.audit for each row execute function rt.audit_stays();
create trigger audit_stays_whole before truncate on rt.audit for each statement execute function rt.audit_stays();

-- Removes up to so many of the oldest lines, those from before that time. Lines are numbered about as they come.
-- The setting is the transaction's: only a superuser may make it a function's own.
create function rt.prune_audit_v1(p_before timestamptz, p_limit int) returns bigint language plpgsql as $$
declare
    v_gone bigint;
begin
    perform set_config('rt.audit_retention', 'on', true);
    delete from rt.audit a using (select o.id, o.at from rt.audit o order by o.id limit p_limit) o
        where a.id = o.id and o.at < p_before;
    get diagnostics v_gone = row_count;
    perform set_config('rt.audit_retention', 'off', true);
    return v_gone;
end $$;
