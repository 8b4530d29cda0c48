-- name: failed_ops
-- The ops by which a worker has told failed attempts in the invocations ($2 epoch, $3 number) that go on as the first ones of
-- these epochs ($4), or have gone on elsewhere since. From now on they are those of the invocation that goes on: it may move
-- again before they are answered.
update {t}.attempts a set epoch = u.new_epoch, inv = 1
from unnest($1::uuid[], $2::bigint[], $3::int[], $4::bigint[]) u(run, epoch, inv, new_epoch)
where a.run = u.run and a.run = any ($1) and (a.epoch = u.epoch and a.inv = u.inv or a.epoch > u.epoch and a.epoch < u.new_epoch)
returning a.run, a.op;
