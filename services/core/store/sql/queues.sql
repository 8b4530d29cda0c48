-- name: tenants
select t.id, t.slug, v.v as version from rt.tenant t join rt.defs_version v on v.tenant = t.id where t.disabled_at is null;

-- name: streams
select id, slug, queue_stream from {t}.projects
where tenant = $1 and trigger_type = 'workflow' and queue_stream is not null;

-- name: existing
select id from {t}.projects where tenant = $1 and id = any ($2);
