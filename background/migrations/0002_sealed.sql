-- What is said and answered is sealed; tasks can be parked, have a ceiling, fragments and webhooks.
--
-- A table whose checks change is made anew beside the old one and takes its place, with the same rows. Their text is
-- sealed right after this, before anything else reads it (sealing.py).

create table new_sessions (
    uid text primary key,                       -- never used again, so an id that was erased and made anew is another session
    owner text not null,
    id text not null,
    kind text not null check (kind in ('chat', 'background')),
    title blob,
    unattended integer not null default 0 check (unattended >= 0),  -- turns in a row that Outrider began by itself
    created_at integer not null,
    updated_at integer not null,
    unique (owner, id)
);
insert into new_sessions (uid, owner, id, kind, title, unattended, created_at, updated_at) select uid, owner, id, kind, nullif(title, ''), unattended, created_at, updated_at from sessions;
drop table sessions;
alter table new_sessions rename to sessions;

create table new_tasks (
    id text primary key,
    owner text not null,
    session text not null references sessions (uid),
    profile text not null,
    origin text not null check (origin in ('user', 'background', 'background-resume')),
    cause text,                                 -- the job (background), or the job or batch (background-resume) behind it
    state text not null check (
        state in ('submitted', 'working', 'input_required', 'auth_required', 'completed', 'failed', 'canceled')
    ),
    ceiling text not null default 'full' check (ceiling in ('full', 'redacted', 'metadata', 'none')),
    reason text,                                -- why it failed, in the words of the contract
    detail blob,                                -- the same for people
    folded_into text,                           -- the running turn that took up this nudge
    revision integer not null default 1 check (revision > 0),
    requests integer not null default 0,
    input_tokens integer not null default 0,
    output_tokens integer not null default 0,
    tool_calls integer not null default 0,
    created_at integer not null,
    started_at integer,
    ended_at integer,
    check ((ended_at is null) = (state in ('submitted', 'working', 'input_required', 'auth_required'))),
    check ((reason is null) or (state = 'failed'))
);
insert into new_tasks (id, owner, session, profile, origin, cause, state, reason, detail, folded_into, revision, requests, input_tokens, output_tokens, tool_calls, created_at, started_at, ended_at) select id, owner, session, profile, origin, cause, state, reason, detail, folded_into, revision, requests, input_tokens, output_tokens, tool_calls, created_at, started_at, ended_at from tasks;
drop table tasks;
alter table new_tasks rename to tasks;

create table new_revisions (
    task_id text not null references tasks (id),
    revision integer not null,
    kind text not null default 'status' check (kind in ('status', 'fragment')),
    state text not null,
    at integer not null,
    projected integer not null default 0 check (projected in (0, 1)),
    primary key (task_id, revision)
) without rowid;
insert into new_revisions (task_id, revision, state, at, projected) select task_id, revision, state, at, not exists (select 1 from unprojected u where u.task_id = revisions.task_id) from revisions;
drop table revisions;
alter table new_revisions rename to revisions;

create table new_results (
    task_id text primary key references tasks (id),
    artifacts blob not null,                    -- a JSON list of protocol artifacts; [] is "ended with nothing", not "lost"
    pieces integer not null,                    -- how many they are
    partial blob,                               -- what text there was when the run failed
    created_at integer not null
) without rowid;
insert into new_results (task_id, artifacts, partial, created_at, pieces) select task_id, artifacts, partial, created_at, json_array_length(artifacts) from results;
drop table results;
alter table new_results rename to results;

create table new_checkpoints (
    task_id text not null references tasks (id),
    name text not null,                         -- input, model:N, tool:N:CALL_ID, answer:KEY, fold:N:NUDGE; after the end: transcript
    content blob not null,
    created_at integer not null,
    primary key (task_id, name)
) without rowid;
insert into new_checkpoints (task_id, name, content, created_at) select task_id, name, content, created_at from checkpoints;
drop table checkpoints;
alter table new_checkpoints rename to checkpoints;

create table new_runs (
    id integer primary key autoincrement,       -- the order of arrival
    kind text not null check (
        kind in ('turn', 'job', 'dispatch', 'report', 'index', 'nudge', 'join', 'expire', 'push', 'erase', 'purge', 'tighten')
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
insert into new_runs (id, kind, key, lane, task_id, params, state, due_at, attempt, tries, spent, worker, leased_at, lease_until, last_error, created_at, ended_at) select id, kind, key, lane, task_id, params, state, due_at, attempt, tries, spent, worker, leased_at, lease_until, last_error, created_at, ended_at from runs;
delete from sqlite_sequence where name = 'new_runs';  -- numbers go on from where they were, not from what is left
insert into sqlite_sequence (name, seq) select 'new_runs', seq from sqlite_sequence where name = 'runs';
drop table runs;
alter table new_runs rename to runs;

create table new_messages (
    id integer primary key autoincrement,
    uid text not null,                          -- names the row to its seals
    session text not null references sessions (uid),
    task_id text references tasks (id),
    role text not null check (role in ('user', 'agent')),
    kind text not null check (kind in ('user', 'agent', 'notification', 'nudge', 'notice')),
    text blob,                                  -- none for an agent's answer, which is read from its result
    content blob,                               -- the protocol message as it was sent
    chars integer not null default 0,           -- how long the text is
    waits integer not null default 0 check (waits in (0, 1)),  -- sent to a task at work, and not yet taken up by it
    job_ids text not null default '[]',
    created_at integer not null
);
insert into new_messages (id, session, task_id, role, kind, text, content, job_ids, created_at, uid, chars) select id, session, task_id, role, kind, nullif(text, ''), content, job_ids, created_at, lower(hex(randomblob(8))), length(text) from messages;
delete from sqlite_sequence where name = 'new_messages';
insert into sqlite_sequence (name, seq) select 'new_messages', seq from sqlite_sequence where name = 'messages';
drop table messages;
alter table new_messages rename to messages;

create table new_jobs (
    id text primary key,
    owner text not null,
    session text not null references sessions (uid),
    batch_id text not null references batches (id),
    key text not null,                          -- the caller's, or the step that spawned it
    fingerprint text not null,
    subagent_type text not null,
    description blob not null,
    prompt blob not null,
    tools text not null,                        -- a JSON list, fixed at spawn
    attempts integer not null default 1,
    task_id text references tasks (id),
    status text not null check (status in ('queued', 'running', 'input_required', 'completed', 'failed', 'canceled')),
    reason text,
    detail blob,
    canceled_by text check (canceled_by in ('user', 'agent', 'plugin')),
    partial integer not null default 0 check (partial in (0, 1)),
    excerpt blob,
    report_chars integer not null default 0,
    indexed integer not null default 0 check (indexed in (0, 1)),
    dismissed integer not null default 0 check (dismissed in (0, 1)),
    erased integer not null default 0 check (erased in (0, 1)),  -- its report was erased and nothing else
    created_at integer not null,
    started_at integer,
    completed_at integer,
    unique (owner, key),
    check ((completed_at is null) = (status in ('queued', 'running', 'input_required'))),
    check ((canceled_by is null) or (status = 'canceled')),
    check ((reason is null) or (status = 'failed'))
);
insert into new_jobs (id, owner, session, batch_id, key, fingerprint, subagent_type, description, prompt, tools, attempts, task_id, status, reason, detail, canceled_by, partial, excerpt, report_chars, indexed, dismissed, created_at, started_at, completed_at) select id, owner, session, batch_id, key, fingerprint, subagent_type, description, prompt, tools, attempts, task_id, status, reason, detail, canceled_by, partial, nullif(excerpt, ''), report_chars, indexed, dismissed, created_at, started_at, completed_at from jobs;
drop table jobs;
alter table new_jobs rename to jobs;

create table new_deliveries (
    job_id text not null references jobs (id),
    attempt integer not null,
    session text not null references sessions (uid),
    state text not null check (state in ('pending', 'attached', 'delivered', 'undeliverable')),
    task_id text references tasks (id),         -- the turn it is attached to, or was delivered by
    tries integer not null default 0,           -- posts and turns that failed
    failed_turns integer not null default 0,
    last_error blob,
    ready_at integer,                           -- its report run is done: it may be told
    notified_at integer,
    ended_at integer not null,
    primary key (job_id, attempt),
    check (task_id is not null or state <> 'attached'),          -- the turn that told may be gone
    check (task_id is null or state in ('attached', 'delivered')),
    check ((notified_at is not null) = (state = 'delivered'))
) without rowid;
insert into new_deliveries (job_id, attempt, session, state, task_id, tries, failed_turns, last_error, ready_at, notified_at, ended_at) select job_id, attempt, session, state, task_id, tries, failed_turns, last_error, ready_at, notified_at, ended_at from deliveries;
drop table deliveries;
alter table new_deliveries rename to deliveries;

create table new_journal (
    task_id text not null references tasks (id),
    revision integer not null,
    number integer not null,
    kind text not null check (kind in ('status', 'artifact', 'fragment')),
    state text not null,
    artifact integer,                           -- its place in the result
    at integer not null,
    primary key (task_id, revision, number)
) without rowid;
insert into new_journal (task_id, revision, number, kind, state, artifact, at) select task_id, revision, number, kind, state, artifact, at from journal;
drop table journal;
alter table new_journal rename to journal;

create table new_events (
    id integer primary key autoincrement,
    uid text not null,                          -- names the row to its seal
    owner text not null,
    session text not null references sessions (uid),
    name text not null,
    data blob not null,
    created_at integer not null
);
insert into new_events (id, owner, session, name, data, created_at, uid) select id, owner, session, name, data, created_at, lower(hex(randomblob(8))) from events;
delete from sqlite_sequence where name = 'new_events';
insert into sqlite_sequence (name, seq) select 'new_events', seq from sqlite_sequence where name = 'events';
drop table events;
alter table new_events rename to events;

drop table unprojected;

create table questions (
    task_id text not null references tasks (id),
    revision integer not null,                  -- the one at which it was asked
    kind text not null check (kind in ('question', 'form', 'approval', 'auth')),
    key text not null,                          -- the step that waits for it
    digest text not null,
    content blob not null,                      -- JSON: text, detail, schema
    run_id integer not null,                    -- the parked run
    asked_at integer not null,
    deadline integer,
    answered_at integer,
    primary key (task_id, revision)
) without rowid;

create table fragments (
    task_id text not null references tasks (id),
    revision integer not null,
    content blob not null,
    primary key (task_id, revision)
) without rowid;

create table webhooks (
    id text not null,
    task_id text not null references tasks (id),
    owner text not null,
    url blob not null,
    token blob,
    scheme blob,
    credentials blob,
    created_at integer not null,
    primary key (task_id, id)
) without rowid;

create table seals (
    key_id text primary key,
    mark blob not null,                         -- a known text, sealed: whoever holds the key can read it
    created_at integer not null
) without rowid;

create index sessions_by_age on sessions (owner, kind, updated_at desc, uid);
create index tasks_open on tasks (owner, profile) where ended_at is null;
create index tasks_of_session on tasks (session, created_at);
create index tasks_ended on tasks (ended_at) where ended_at is not null;
create index receipts_of_task on receipts (task_id);
create index revisions_to_project on revisions (at, task_id, revision) where projected = 0;
create index webhooks_by_age on webhooks (owner, created_at desc, task_id desc, id desc);
create unique index questions_open on questions (task_id) where answered_at is null;
create index runs_due on runs (kind, due_at, id) where state = 'queued';
create index runs_leased on runs (lease_until) where state = 'running';
create index runs_lane on runs (lane, id) where ended_at is null;
create unique index runs_lane_head on runs (lane) where state in ('queued', 'running', 'parked');
create unique index runs_turn_of_task on runs (task_id) where ended_at is null and kind in ('turn', 'job');
create index runs_of_task on runs (task_id) where task_id is not null;
create index runs_ended on runs (kind, ended_at) where ended_at is not null;
create index messages_of_session on messages (session, id);
create index messages_of_task on messages (task_id, id);
create index messages_waiting on messages (task_id, id) where waits = 1;
create index batches_of_session on batches (session);
create index jobs_by_age on jobs (owner, created_at desc, id desc);
create index jobs_of_session on jobs (session, created_at desc, id desc);
create index jobs_by_status on jobs (owner, status, created_at desc, id desc);
create index jobs_queued on jobs (owner) where status = 'queued';
create index jobs_task on jobs (task_id);
create index jobs_of_batch on jobs (batch_id);
create index jobs_ended on jobs (completed_at) where completed_at is not null;
create index deliveries_pending on deliveries (session, ended_at, job_id) where state = 'pending';
create index deliveries_of_task on deliveries (task_id) where task_id is not null;
create index deliveries_of_session on deliveries (session);
create index joins_of_task on joins (task_id) where task_id is not null;
create index events_of_owner on events (owner, id);
create index events_of_session on events (session, id);
create index events_by_age on events (created_at);

-- Tasks are listed by the time of their status, newest first: of an owner, in a state, in a session.

alter table views add column listed integer not null default 1 check (listed in (0, 1));
update views set at = at - at % 1000, listed = (select kind = 'chat' from sessions where uid = views.session);
create index views_by_time on views (owner, at desc, task_id) where listed = 1;
create index views_by_state on views (owner, state, at desc, task_id) where listed = 1;
create index views_of_session on views (session, at desc, task_id);
