-- name: count_attempt
-- Counted before the password is looked at, so that many at once, at many replicas, are not more than as many in turn.
insert into rt.login_window as w (key, attempts, since) values ($1, 1, rt.now())
on conflict (key) do update set
    attempts = case when w.since <= rt.now() - $2::bigint * interval '1 millisecond' then 1 else w.attempts + 1 end,
    since = case when w.since <= rt.now() - $2::bigint * interval '1 millisecond' then rt.now() else w.since end
returning attempts, rt.ms(since) + $2::bigint - rt.ms(rt.now()) as left_ms;

-- name: forget_attempts
delete from rt.login_window where key = $1;

-- name: insert_session
insert into rt.session (id, member, hash, expires_at)
values ($1, $2, $3, rt.now() + $4::bigint * interval '1 millisecond') returning rt.ms(expires_at);

-- name: rotate_session
-- Not twice within the time that the former secret passes: its bearer would be left with neither.
update rt.session set former_hash = hash, former_until = rt.now() + $3::bigint * interval '1 millisecond', hash = $2
where id = $1 and expires_at > rt.now() and (former_until is null or former_until <= rt.now())
returning rt.ms(expires_at);

-- name: delete_session
delete from rt.session where id = $1;

-- name: delete_sessions_of
-- All of a user but one.
delete from rt.session where member = $1 and ($2::uuid is null or id <> $2);

-- name: forget_sessions
delete from rt.session s using (select o.id from rt.session o where o.expires_at < rt.now() order by o.expires_at limit $1) o
where s.id = o.id;

-- name: forget_windows
delete from rt.login_window w using (
    select o.key from rt.login_window o where o.since < rt.now() - $1::bigint * interval '1 millisecond' order by o.since limit $2
) o where w.key = o.key;

-- name: audit_stranger
-- A line for the first so many of a minute, over all replicas. The minute is in the key: none begins another's count anew.
with counted as (
    insert into rt.login_window as w (key, attempts, since)
    values ($1::bytea || int8send(rt.ms(rt.now()) / 60000), 1, rt.now())
    on conflict (key) do update set attempts = w.attempts + 1
    returning attempts
)
insert into rt.audit (tenant, actor, action, subject)
select 0, $2::text, 'login.failed', $2 from counted where attempts <= $3::int;

-- name: audit_left_out
-- One line for each minute that had more, and is over since a minute: nobody counts in it any more.
with ended as (
    delete from rt.login_window w using (
        select o.key from (select $1::bytea || int8send(rt.ms(rt.now()) / 60000 - 1) as upto offset 0) t,
            lateral (select i.key from rt.login_window i where i.key > $1::bytea and i.key < t.upto
                     order by i.key limit $3::int offset 0) o
    ) o where w.key = o.key returning w.attempts - $2::int as more, w.since
)
insert into rt.audit (tenant, actor, action, subject)
select 0, 'unknown', 'login.failed',
    format('%s more with unknown addresses in a minute from %s', more,
           to_char(since at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'))
from ended where more > 0 order by since;
