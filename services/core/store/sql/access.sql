-- name: bootstrap_lock
-- One process at a time enters a fresh stack; the others find its work done.
select pg_advisory_xact_lock(hashtext('runr bootstrap'));

-- name: create_tenant
select rt.create_tenant($1, $2);

-- name: tenant
select id, slug, name, disabled_at is not null as disabled from rt.tenant where id = $1;

-- name: tenant_by_slug
select id, slug, name, disabled_at is not null as disabled from rt.tenant where slug = $1;

-- name: authenticate
-- Whom a secret stands for, and in which tenant: the one of that name, or the token's own, or the first that the user joined;
-- null where the caller has no such.
with k as materialized (
    select k.id, k.member, k.tenant as home, k.abilities, k.expires_at, false as signed_in,
           k.last_used_at is null or k.last_used_at < rt.now() - interval '1 minute' as stale
    from rt.token k
    where k.hash = $1 and k.revoked_at is null and (k.expires_at is null or k.expires_at > rt.now())
    union all
    select s.id, s.member, null, null, s.expires_at, true, false
    from rt.session s where s.hash = $1 and s.expires_at > rt.now()
    union all
    select s.id, s.member, null, null, least(s.expires_at, s.former_until), true, false
    from rt.session s where s.former_hash = $1 and s.former_until > rt.now() and s.expires_at > rt.now()
)
select k.id, k.member, k.home, k.abilities, k.signed_in, k.stale, rt.ms(k.expires_at) - rt.ms(rt.now()) as left_ms,
       coalesce(u.email, '') as email, p.tenant, p.disabled, p.role
from k left join rt.users u on u.id = k.member left join lateral (
    select t.id as tenant, t.disabled_at is not null as disabled, 'owner' as role
    from rt.tenant t where k.member is null and t.id = k.home and ($2::text is null or t.slug = $2)
    union all
    (select t.id, t.disabled, m.role
     from (select j.id, j.tenant, j.role from rt.membership j where j.member = k.member offset 0) m
     join lateral (
         select t.id, t.slug, t.disabled_at is not null as disabled from rt.tenant t where t.id = m.tenant offset 0
     ) t on true
     where t.slug = $2 or ($2 is null and (k.home is null or t.id = k.home))
     order by t.disabled, m.id limit 1)
    offset 0
) p on true
where u.disabled_at is null;

-- name: touch_token
update rt.token set last_used_at = rt.now()
where id = $1 and (last_used_at is null or last_used_at < rt.now() - interval '1 minute');

-- name: insert_token
-- No row: the expiry has passed already.
insert into rt.token (id, tenant, name, hash, abilities, expires_at, member)
select $1, $2, $3, $4, $5, to_timestamp($6::bigint / 1000.0), $7
where $6::bigint is null or to_timestamp($6::bigint / 1000.0) > rt.now()
returning id, name, abilities, rt.ms(created_at) as created_ms, rt.ms(expires_at) as expires_ms, null::bigint as used_ms,
          coalesce((select u.email from rt.users u where u.id = $7), '') as email;

-- name: put_bootstrap_token
-- A token that somebody took back stays so, until another one is given. A hash that another row has is that row's.
insert into rt.token (id, tenant, name, hash, abilities)
select $1, $2, 'bootstrap', $3, $4 where not exists (select from rt.token where hash = $3)
on conflict (id) do update set tenant = excluded.tenant, hash = excluded.hash, abilities = excluded.abilities,
                               created_at = rt.now(), revoked_at = null
where rt.token.hash <> excluded.hash;

-- name: list_tokens
select k.id, k.name, k.abilities, rt.ms(k.created_at) as created_ms, rt.ms(k.expires_at) as expires_ms,
       rt.ms(k.last_used_at) as used_ms, coalesce(u.email, '') as email
from rt.token k left join lateral (select w.email from rt.users w where w.id = k.member offset 0) u on true
where k.tenant = $1 and k.revoked_at is null and k.id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000')
order by k.id limit $3;

-- name: hold_token
-- Of a user who is no member any more, it is worth what the lowest role is worth.
select k.name, k.member, coalesce(m.role, case when k.member is null then 'owner' else 'viewer' end) as role
from rt.token k left join rt.membership m on m.member = k.member and m.tenant = k.tenant
where k.tenant = $1 and k.id = $2 and k.revoked_at is null for no key update of k;

-- name: revoke_token
update rt.token set revoked_at = rt.now() where tenant = $1 and id = $2 and revoked_at is null returning name;

-- name: revoke_tokens_of
update rt.token set revoked_at = rt.now() where tenant = $1 and member = $2 and revoked_at is null returning id;

-- name: audit
insert into rt.audit (tenant, actor, action, subject) values ($1, $2, $3, $4);

-- name: audit_user
-- In each tenant of a user, who need not exist: then of the installation.
insert into rt.audit (tenant, actor, action, subject)
select coalesce(m.tenant, 0), $2, $3, $4 from (select $1::uuid as member) u left join rt.membership m on m.member = u.member;

-- name: list_audit
select a.id, rt.ms(a.at) as at_ms, a.actor, a.action, a.subject from rt.audit a
where a.tenant = $1 and a.id < coalesce($2::bigint, 9223372036854775807) and starts_with(a.action, $3)
order by a.id desc limit $4;

-- name: prune_audit
select rt.prune_audit_v1(rt.now() - $1::int * interval '1 day', $2);
