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

-- What model calls cost, put to turn, part, job and session; jobs of jobs.
alter table sessions add column tree_tokens integer not null default 0;  -- model tokens of its jobs since its user last spoke

alter table jobs add column requests integer not null default 0;  -- what it has cost, over all its attempts
alter table jobs add column input_tokens integer not null default 0;
alter table jobs add column output_tokens integer not null default 0;
alter table jobs add column tool_calls integer not null default 0;
alter table jobs add column parent text;         -- the job that sent it out
alter table jobs add column depth integer not null default 1;  -- levels below the chat
alter table jobs add column plugin text;         -- the plugin that sent it out
create index jobs_of_parent on jobs (parent) where parent is not null;

create table expenses (
    id integer primary key,
    session text not null references sessions (uid),  -- the chat, also for what its jobs have cost
    task_id text references tasks (id),         -- none once that is gone
    part integer not null check (part > 0),     -- a new one begins with each answer that the turn had waited for
    job_id text,
    cause text not null check (cause in ('turn', 'briefing', 'job', 'retry')),
    at integer not null,                        -- when it last asked a model
    requests integer not null,
    input_tokens integer not null,
    output_tokens integer not null,
    tool_calls integer not null,
    unique (task_id, part)
);
create index expenses_of_session on expenses (session, cause);
create index expenses_of_job on expenses (job_id) where job_id is not null;
create index expenses_by_age on expenses (at);

update jobs set requests = spent.requests, input_tokens = spent.input_tokens, output_tokens = spent.output_tokens,
    tool_calls = spent.tool_calls from (
        select cause, sum(requests) as requests, sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens,
        sum(tool_calls) as tool_calls from tasks where origin = 'background' group by cause
    ) as spent where spent.cause = jobs.id;
insert into expenses (session, task_id, part, job_id, cause, at, requests, input_tokens, output_tokens, tool_calls)
    select coalesce(j.session, t.session), t.id, 1, j.id,
        case when t.origin = 'user' then 'turn' when t.origin = 'background-resume' then 'briefing'
            when t.id = j.task_id and j.attempts > 1 then 'retry' else 'job' end,
        coalesce(t.ended_at, t.started_at, t.created_at), t.requests, t.input_tokens, t.output_tokens, t.tool_calls
    from tasks t left join jobs j on t.origin = 'background' and j.id = t.cause
    where t.requests > 0 and (t.origin <> 'background' or j.id is not null) order by t.created_at, t.id;

create table listeners (
    name text primary key,                      -- the plugin's and its own
    heard integer not null,                     -- the number of the last event that it has taken
    holder text,                                -- who tells it
    held_until integer,
    check ((holder is null) = (held_until is null))
) without rowid;
