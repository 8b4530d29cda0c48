-- Writes that are named by their callers (the Idempotency-Key of HTTP): what was asked under a name is carried out once, and
-- answered the same way each time it is asked again.

-- `id` is what the write gives to what it makes, if it can: asked again under the same, it is the same. `holder` carries it out
-- until `held_until`; without an answer after that it is not known whether it was carried out. The answer is sealed.
create table rt.named_write (
    tenant     int not null,
    token      text not null,
    method     text not null,
    name       text collate "C" not null check (octet_length(name) between 1 and 255),
    asked      bytea not null check (octet_length(asked) = 32),
    id         uuid not null,
    holder     uuid not null,
    held_until timestamptz not null,
    done       bool not null default false,
    answer     bytea check (done or answer is null),
    created_at timestamptz not null default rt.now(),
    primary key (tenant, token, method, name)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
create index named_write_age on rt.named_write (created_at);

-- Begin to carry out a write. `result`: new (it was never begun), held (somebody is at it), done (with the answer), other (the
-- name stands for something else); and of one that was begun and whose end is not known: again, or unknown where the caller of
-- this may not repeat it (p_repeats).
create function rt.begin_write_v1(p_tenant int, p_token text, p_method text, p_name text, p_asked bytea, p_id uuid, p_holder uuid,
                                  p_hold_ms int, p_keep_ms bigint, p_repeats bool)
returns table (result text, id uuid, age_ms bigint, answer bytea) language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := rt.now();
    v_until timestamptz := v_now + p_hold_ms * interval '1 millisecond';
    v_row rt.named_write%rowtype;
begin
    loop
        insert into rt.named_write (tenant, token, method, name, asked, id, holder, held_until, created_at)
        values (p_tenant, p_token, p_method, p_name, p_asked, p_id, p_holder, v_until, v_now)
        on conflict do nothing;
        if found then return query select 'new', p_id, 0::bigint, null::bytea; return; end if;
        select * into v_row from rt.named_write n
        where n.tenant = p_tenant and n.token = p_token and n.method = p_method and n.name = p_name for update;
        exit when found;                           -- else it was taken away in between
    end loop;
    if v_row.created_at < v_now - p_keep_ms * interval '1 millisecond' then
        update rt.named_write n
        set asked = p_asked, id = p_id, holder = p_holder, held_until = v_until, done = false, answer = null, created_at = v_now
        where n.tenant = p_tenant and n.token = p_token and n.method = p_method and n.name = p_name;
        return query select 'new', p_id, 0::bigint, null::bytea;
    elsif v_row.asked <> p_asked then
        return query select 'other', v_row.id, 0::bigint, null::bytea;
    elsif v_row.done then
        return query select 'done', v_row.id, 0::bigint, v_row.answer;
    elsif v_row.held_until > v_now then
        return query select 'held', v_row.id, 0::bigint, null::bytea;
    elsif not p_repeats then
        return query select 'unknown', v_row.id, 0::bigint, null::bytea;
    else
        update rt.named_write n set holder = p_holder, held_until = v_until
        where n.tenant = p_tenant and n.token = p_token and n.method = p_method and n.name = p_name;
        return query select 'again', v_row.id, rt.ms(v_now) - rt.ms(v_row.created_at), null::bytea;
    end if;
end $$;
