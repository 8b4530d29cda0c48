-- name: committed
select * from rt.committed_v1($1, $2, $3, $4, $5);

-- One plain result of a run that goes on, without the arrays that a batch needs (rulings 3.1). No row: not committed, and
-- why is for commit_v1 to say. Neither does it wait for a row that another transaction holds.
-- name: commit_step
with u as (
    update rt.live r set
        rev = r.rev + 1, steps = r.steps + 1, bytes = r.bytes + $5::int, fn_att = $6::smallint, nd = $7::smallint,
        uses = r.uses + $8::int
    where r.id = (
        select l.id from rt.live l
        where l.id = $2::uuid and (l.owner = $1::bigint) is true and l.epoch = $3::bigint and l.rev = $4::bigint
        for no key update skip locked
    )
    returning r.id, r.mail, r.st, r.ga, rt.now() as now
), s as (
    insert into rt.steps (tenant, run, sid, seq, name, kind, status, output, error, input, att, t0, t1)
    select $9::int, $2::uuid, $10::text, $11::int, $12::text, $13::text, $14::text, $15::text, $16::text, $17::text,
           $18::int, u.now - $19::int * interval '1 millisecond', u.now
    from u on conflict do nothing
)
select u.id as run, 'd' as result, u.mail, u.st::text as st, u.ga from u;

-- name: commit_end
-- One plain end, in the same way.
select * from rt.commit_end_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);
