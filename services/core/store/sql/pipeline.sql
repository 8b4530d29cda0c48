-- name: committed
select * from rt.committed_v1($1, $2, $3, $4, $5);
