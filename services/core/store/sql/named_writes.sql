-- Writes that are named by their callers (migration 0013).

-- name: begin
select * from rt.begin_write_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: done
update rt.named_write n set done = true, answer = $6
where n.tenant = $1 and n.token = $2 and n.method = $3 and n.name = $4 and n.holder = $5;

-- name: forget
delete from rt.named_write n
where n.tenant = $1 and n.token = $2 and n.method = $3 and n.name = $4 and n.holder = $5 and not n.done;

-- name: let_go
update rt.named_write n set held_until = rt.now()
where n.tenant = $1 and n.token = $2 and n.method = $3 and n.name = $4 and n.holder = $5 and not n.done;

-- name: prune
delete from rt.named_write n where n.ctid = any (array(
    select o.ctid from rt.named_write o where o.created_at < rt.now() - $1::bigint * interval '1 millisecond'
    order by o.created_at limit $2));
