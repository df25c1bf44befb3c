-- Messages that are to be taken up by a turn at work, and which they were taken up by; what a turn did and what failed
-- of it, for its story; who gave a delivery up; how often something happened.

alter table tasks add column steers text;        -- the turn that this message is to be folded into, between two of its steps
create index tasks_steering on tasks (steers) where steers is not null;
create index tasks_folded on tasks (folded_into) where folded_into is not null;

create table failures (
    run_id integer not null references runs (id) on delete cascade,
    attempt integer not null,
    at integer not null,
    error blob,                                 -- none where it was handed back
    primary key (run_id, attempt)
);

create table steps (
    task_id text not null references tasks (id) on delete cascade,
    name text not null,                         -- its checkpoint's: model:N, tool:N:CALL_ID
    at integer not null,
    facts text not null,                        -- JSON: who was asked, what it cost, which tools it called; no word of what was said
    primary key (task_id, name)
) without rowid;

create table tallies (
    name text not null,
    label text not null,
    count integer not null check (count > 0),
    primary key (name, label)
) without rowid;

alter table deliveries add column discarded_at integer;
alter table deliveries add column discarded_by text;
create index deliveries_untold on deliveries (ended_at) where state in ('pending', 'attached');
