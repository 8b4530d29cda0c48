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
select k.id, k.tenant, k.abilities, t.slug, t.disabled_at is not null as disabled,
       (rt.ms(k.expires_at) - rt.ms(rt.now())) as left_ms
from rt.token k join rt.tenant t on t.id = k.tenant
where k.hash = $1 and k.revoked_at is null and (k.expires_at is null or k.expires_at > rt.now());

-- name: insert_token
-- No row: the expiry has passed already.
insert into rt.token (id, tenant, name, hash, abilities, expires_at)
select $1, $2, $3, $4, $5, to_timestamp($6::bigint / 1000.0)
where $6::bigint is null or to_timestamp($6::bigint / 1000.0) > rt.now()
returning id, name, abilities, rt.ms(created_at) as created_ms, rt.ms(expires_at) as expires_ms;

-- name: put_bootstrap_token
-- A token that somebody took back stays so, until another one is given. A hash that another row has is that row's.
insert into rt.token (id, tenant, name, hash, abilities)
select $1, $2, 'bootstrap', $3, $4 where not exists (select from rt.token where hash = $3)
on conflict (id) do update set tenant = excluded.tenant, hash = excluded.hash, abilities = excluded.abilities,
                               created_at = rt.now(), revoked_at = null
where rt.token.hash <> excluded.hash;

-- name: list_tokens
select id, name, abilities, rt.ms(created_at) as created_ms, rt.ms(expires_at) as expires_ms
from rt.token
where tenant = $1 and revoked_at is null and ($2::uuid is null or id > $2)
order by id limit $3;

-- name: revoke_token
update rt.token set revoked_at = rt.now() where tenant = $1 and id = $2 and revoked_at is null returning name;

-- name: audit
insert into rt.audit (tenant, actor, action, subject) values ($1, $2, $3, $4);
