-- Concurrency gates (engine section 5; rulings C16).

-- name: grant
select run, tenant from rt.grant_v1($1, $2);

-- name: blocked
select ga, gb from rt.blocked_v1($1, $2, $3);

-- name: outdated
select wf, version, tenant, runs from rt.outdated_v1($1, $2, $3, $4);

-- name: regate
select run, ga, gb, was_ga, was_gb from rt.regate_v1($1, $2, $3, $4);

-- name: put_rules
-- A workflow that never had a limit needs none. Where the keys are others, leases of before may be left.
insert into rt.gate_rule (wf, tenant, keys, a, b)
select u.wf, $1, u.keys, u.a, u.b from unnest($2::int[], $3::bigint[], $4::int[], $5::int[]) u(wf, keys, a, b)
where u.a is not null or exists (select from rt.gate_rule g where g.wf = u.wf)
order by u.wf
on conflict (wf) do update set keys = excluded.keys, a = excluded.a, b = excluded.b,
    turn = rt.gate_rule.turn + (rt.gate_rule.keys <> excluded.keys)::int,
    settled = rt.gate_rule.settled and rt.gate_rule.keys = excluded.keys;
