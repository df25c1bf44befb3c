-- What a model is given in place of older turns; what a finished job was asked further; expenses of more causes.

create table gists (
    session text primary key references sessions (uid),
    task_id text not null,                      -- the turn that had it made
    upto text not null,                         -- the last turn that it covers, and when that ended
    upto_at integer not null,
    job_ids text not null,                      -- a JSON list: what these turns were told of
    content blob not null,
    created_at integer not null
) without rowid;

alter table jobs add column follow_up blob;      -- what its present attempt was asked, if it goes on from earlier ones
alter table jobs add column knows text;          -- a JSON list: the turns that it goes on from
alter table jobs add column asked_by text;       -- the step that asked, if one did
create index jobs_asked_by on jobs (asked_by) where asked_by is not null;

create table new_expenses (
    id integer primary key,
    session text not null references sessions (uid),  -- the chat, also for what its jobs have cost
    task_id text references tasks (id),         -- none once that is gone
    part integer not null check (part > 0),     -- a new one begins with each answer that the turn had waited for
    job_id text,
    cause text not null check (cause in ('turn', 'briefing', 'job', 'retry', 'follow_up', 'compaction', 'memory')),
    at integer not null,                        -- when it last asked a model
    requests integer not null,
    input_tokens integer not null,
    output_tokens integer not null,
    tool_calls integer not null,
    unique (task_id, part, cause)
);
insert into new_expenses select id, session, task_id, part, job_id, cause, at, requests, input_tokens, output_tokens, tool_calls
    from expenses;
drop table expenses;
alter table new_expenses rename to expenses;
create index expenses_of_session on expenses (session, cause);
create index expenses_of_job on expenses (job_id) where job_id is not null;
create index expenses_by_age on expenses (at);

-- What is kept nowhere else; of what a turn's answer is made.
alter table sessions add column incognito integer not null default 0 check (incognito in (0, 1));  -- for good
create index sessions_incognito on sessions (updated_at) where incognito = 1;
alter table jobs add column incognito integer not null default 0 check (incognito in (0, 1));  -- for good
alter table jobs add column deterministic integer not null default 0 check (deterministic in (0, 1));  -- work without a model
alter table jobs add column made_of integer check (made_of in (1, 2, 3));  -- the lowest tier that its sender had read by then
alter table tasks add column made_of integer check (made_of in (1, 2, 3));  -- the lowest tier of what it has read

-- What is remembered of chats, and what of it was put before which model; runs of the kinds that make it.
create table memories (
    id text primary key,
    owner text not null,
    session text not null,                      -- the chat that it is made of; a fact outlives it, where retention takes that
    kind text not null check (kind in ('summary', 'fact')),
    content blob not null,
    trust integer not null check (trust in (1, 2, 3)),
    upto integer not null,                      -- the last entry of the log that it is made of
    created_at integer not null,
    superseded_at integer
);
create index memories_in_force on memories (owner, kind, created_at desc, id) where superseded_at is null;
create index memories_of_session on memories (session, kind);
create index memories_superseded on memories (superseded_at) where superseded_at is not null;

alter table sessions add column harvested integer not null default 0;  -- the last entry of its log that was searched for facts

create table memory_uses (
    id integer primary key,
    session text not null references sessions (uid),
    task_id text not null references tasks (id),
    step text not null,                         -- what brought it: begin, or the tool's step
    kind text not null check (kind in ('digest', 'fact', 'passage', 'session', 'report')),
    item text not null,                         -- a session's uid, or the id of a memory, a document, a job
    place integer not null default 0,           -- where in it, in characters
    tier integer not null check (tier in (1, 2, 3)),
    tokens integer not null,                    -- about
    at integer not null,
    unique (task_id, step, kind, item, place)
);
create index memory_uses_of_session on memory_uses (session, id);
create index memory_uses_recalled on memory_uses (item) where kind = 'session';

create table new_runs (
    id integer primary key autoincrement,       -- the order of arrival
    kind text not null check (
        kind in (
            'turn', 'job', 'dispatch', 'report', 'index', 'nudge', 'join', 'expire', 'push', 'erase', 'purge', 'tighten',
            'remember', 'summary', 'harvest'
        )
    ),
    key text not null unique,                   -- enqueueing twice is once
    lane text,                                  -- one at a time, oldest first
    task_id text references tasks (id),
    params text not null default '{}',
    state text not null check (state in ('waiting', 'queued', 'running', 'parked', 'done', 'failed', 'canceled')),
    due_at integer not null,
    attempt integer not null default 0,         -- the fence: who holds an older one may not write
    tries integer not null default 0,           -- claims since the last new checkpoint
    spent integer not null default 0,           -- run time under a live lease
    worker text,
    leased_at integer,
    lease_until integer,
    last_error blob,
    created_at integer not null,
    ended_at integer,
    check ((ended_at is null) = (state in ('waiting', 'queued', 'running', 'parked'))),
    check ((lease_until is not null) = (state = 'running')),
    check ((worker is not null) = (state = 'running'))
);
insert into new_runs (id, kind, key, lane, task_id, params, state, due_at, attempt, tries, spent, worker, leased_at, lease_until, last_error, created_at, ended_at)
    select id, kind, key, lane, task_id, params, state, due_at, attempt, tries, spent, worker, leased_at, lease_until, last_error, created_at, ended_at from runs;
delete from sqlite_sequence where name = 'new_runs';  -- numbers go on from where they were, not from what is left
insert into sqlite_sequence (name, seq) select 'new_runs', seq from sqlite_sequence where name = 'runs';
drop table runs;
alter table new_runs rename to runs;
create index runs_due on runs (kind, due_at, id) where state = 'queued';
create index runs_leased on runs (lease_until) where state = 'running';
create index runs_lane on runs (lane, id) where ended_at is null;
create unique index runs_lane_head on runs (lane) where state in ('queued', 'running', 'parked');
create unique index runs_turn_of_task on runs (task_id) where ended_at is null and kind in ('turn', 'job');
create index runs_of_task on runs (task_id) where task_id is not null;
create index runs_ended on runs (kind, ended_at) where ended_at is not null;
