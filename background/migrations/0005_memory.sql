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
alter table jobs add column made_of integer check (made_of in (1, 2, 3));  -- the lowest tier that its sender had read by then
alter table tasks add column made_of integer check (made_of in (1, 2, 3));  -- the lowest tier of what it has read
