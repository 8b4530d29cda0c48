-- name: begin
begin isolation level repeatable read read only;
set local statement_timeout = '5s';
set local plan_cache_mode = force_custom_plan;

-- name: rollback
rollback;
