-- name: hold_tenant
-- Memberships of a tenant change one at a time: else its last two owners could remove each other.
select id from rt.tenant where id = $1 for no key update;

-- name: list_tenants
select id, slug, name, disabled_at is not null as disabled, rt.ms(created_at) as created_ms, '' as role
from rt.tenant where $1::text is null or slug > $1 order by slug limit $2;

-- name: one_tenant
select id, slug, name, disabled_at is not null as disabled, rt.ms(created_at) as created_ms, 'owner' as role
from rt.tenant where id = $1;

-- name: tenants_of
select t.id, t.slug, t.name, t.disabled, t.created_ms, m.role
from (select j.tenant, j.role from rt.membership j where j.member = $1 offset 0) m join lateral (
    select t.id, t.slug, t.name, t.disabled_at is not null as disabled, rt.ms(t.created_at) as created_ms
    from rt.tenant t where t.id = m.tenant offset 0
) t on true
where $2::text is null or t.slug > $2 order by t.slug limit $3;

-- name: owned_tenants
select count(*) from rt.membership where member = $1 and role = 'owner';

-- name: disable_tenant
update rt.tenant set disabled_at = case when $2 then coalesce(disabled_at, rt.now()) end where slug = $1 returning id;

-- name: insert_user
insert into rt.users (id, email, email_key, password) values ($1, $2, $3, $4) on conflict (email_key) do nothing returning id;

-- name: user_by_key
select id, email, password, disabled_at is not null as disabled from rt.users where email_key = $1;

-- name: user
select id, email, password, disabled_at is not null as disabled from rt.users where id = $1;

-- name: hold_user
select id from rt.users where id = $1 for no key update;

-- name: list_users
select u.id, u.email, u.password is not null as can_sign_in, u.disabled_at is not null as disabled,
       coalesce((select string_agg(t.slug || ':' || m.role, ' ' order by t.slug)
                 from rt.membership m join rt.tenant t on t.id = m.tenant where m.member = u.id), '') as memberships
from rt.users u where $1::text is null or u.email_key > $1 order by u.email_key limit $2;

-- name: set_password
update rt.users set password = $2 where id = $1;

-- name: disable_user
update rt.users set disabled_at = case when $2 then coalesce(disabled_at, rt.now()) end where id = $1;

-- name: insert_member
insert into rt.membership (id, tenant, member, role) values ($1, $2, $3, $4) on conflict (member, tenant) do nothing returning id;

-- name: member
select m.id, m.member, u.email, m.role, rt.ms(m.created_at) as created_ms
from rt.membership m join lateral (select w.email from rt.users w where w.id = m.member offset 0) u on true where m.tenant = $1 and m.id = $2;

-- name: member_by_user
select m.id, m.member, u.email, m.role, rt.ms(m.created_at) as created_ms
from rt.membership m join lateral (select w.email from rt.users w where w.id = m.member offset 0) u on true where m.tenant = $1 and m.member = $2;

-- name: list_members
select m.id, m.member, u.email, m.role, rt.ms(m.created_at) as created_ms
from rt.membership m join lateral (select w.email from rt.users w where w.id = m.member offset 0) u on true
where m.tenant = $1 and m.id > coalesce($2::uuid, '00000000-0000-0000-0000-000000000000') order by m.id limit $3;

-- name: set_role
update rt.membership set role = $2 where id = $1;

-- name: delete_member
delete from rt.membership where id = $1;

-- name: other_owners
-- Those who can still sign in, or bring a token: one who is disabled keeps nothing alive.
select count(*) from (
    select j.member from rt.membership j where j.tenant = $1 and j.role = 'owner' and j.id <> $2 offset 0
) m join lateral (select from rt.users w where w.id = m.member and w.disabled_at is null offset 0) u on true;
