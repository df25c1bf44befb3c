-- The registry: everything that must change together. Times are microseconds, UTC.
--
--   sessions ──< tasks ──< runs ──< failures   a session's turns are tasks; a turn's work is a run in the one queue
--       │          ├──── results           what the task ended with: written once, with the end itself
--       │          ├──< checkpoints        how far the turn has come: its input, each answer, each tool's result
--       │          ├──< steps              what it did on its way and what that cost, without a word of what was said
--       │          ├──< questions          what it has asked its user, and waits for while it is parked
--       │          ├──< fragments          pieces of an answer that is not finished
--       │          ├──< webhooks           who wants to be called about it
--       │          ├──< receipts           which message made it: (owner, message id) is taken once
--       │          └──< revisions          each committed change of state …
--       │                  └─ views, journal   … brought to the read side by the projector
--       ├──< messages                      the log: what was said, in order
--       ├──< events                        what the console hears
--       ├──< memories                      what is remembered of it
--       ├──< memory_uses                   which memories its turns were given
--       ├──< expenses                      what model calls have cost: turns', and those of its jobs
--       ├──── gists                        what its model is given in place of its older turns
--       ├──< shares ──< share_uses         who else may read it, or speak in it, and who has
--       └──< jobs >── members ──> batches ──< joins
--              │                         work that somebody in the session waits for, and how it comes back
--              └──< deliveries          which turn tells of an attempt's end
--   workers                                who runs turns, and when it was last heard of
--   seals                                  which keys have sealed cells of this file
--   tokens                                 who may ask at all
--   tallies                                how often something happened, for the figures
--   listeners                              how far plugins have heard of events, and which process tells them
--
-- A session's life: made by its first message. A task's: submitted → working → completed | failed | canceled, and in
-- between parked (input_required, auth_required) while it waits for an answer.
-- A run's: waiting (behind another in its lane) → queued → running → done | failed | canceled; running → queued on a retry,
-- running → parked with its task, and then it holds the lane until the answer comes.
-- A job's: queued → running → completed | failed | canceled; then its delivery: pending → attached → delivered.
-- Ends are first write wins: each is one guarded statement, and zero rows back means that another was first.
--
-- A blob is a sealed cell: what somebody said or a model answered is written in no other way. See sealing.py.

create table migrations (
    number integer primary key,
    name text not null,
    applied_at integer not null
);

create table sessions (
    uid text primary key,                       -- never used again, so an id that was erased and made anew is another session
    owner text not null,
    id text not null,
    kind text not null check (kind in ('chat', 'background')),
    title blob,
    unattended integer not null default 0 check (unattended >= 0),  -- turns in a row that Outrider began by itself
    created_at integer not null,
    updated_at integer not null,
    tree_tokens integer not null default 0,     -- model tokens of its jobs since its user last spoke
    incognito integer not null default 0 check (incognito in (0, 1)),  -- for good
    harvested integer not null default 0,       -- the last entry of its log that was searched for facts
    unique (owner, id)
);
create index sessions_by_age on sessions (owner, kind, updated_at desc, uid);
create index sessions_incognito on sessions (updated_at) where incognito = 1;

create table tasks (
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
    folded_into text,                           -- the running turn that took up this nudge, or this message
    revision integer not null default 1 check (revision > 0),
    requests integer not null default 0,
    input_tokens integer not null default 0,
    output_tokens integer not null default 0,
    tool_calls integer not null default 0,
    created_at integer not null,
    started_at integer,
    ended_at integer,
    initiated_by text,                          -- who sent the message that made it, where that was not its owner
    steers text,                                -- the turn that this message is to be folded into, between two of its steps
    made_of integer check (made_of in (1, 2, 3)),  -- the lowest tier of what it has read
    check ((ended_at is null) = (state in ('submitted', 'working', 'input_required', 'auth_required'))),
    check ((reason is null) or (state = 'failed'))
);
create index tasks_open on tasks (owner, profile) where ended_at is null;
create index tasks_of_session on tasks (session, created_at);
create index tasks_ended on tasks (ended_at) where ended_at is not null;
create index tasks_steering on tasks (steers) where steers is not null;
create index tasks_folded on tasks (folded_into) where folded_into is not null;

create table receipts (
    owner text not null,
    message_id text not null,
    fingerprint text not null,
    task_id text not null references tasks (id),
    primary key (owner, message_id)
) without rowid;
create index receipts_of_task on receipts (task_id);

create table revisions (
    task_id text not null references tasks (id),
    revision integer not null,
    kind text not null default 'status' check (kind in ('status', 'fragment')),
    state text not null,
    at integer not null,
    projected integer not null default 0 check (projected in (0, 1)),
    primary key (task_id, revision)
) without rowid;
create index revisions_to_project on revisions (at, task_id, revision) where projected = 0;

create table results (
    task_id text primary key references tasks (id),
    artifacts blob not null,                    -- a JSON list of protocol artifacts; [] is "ended with nothing", not "lost"
    pieces integer not null,                    -- how many they are
    partial blob,                               -- what text there was when the run failed
    created_at integer not null
) without rowid;

create table checkpoints (
    task_id text not null references tasks (id),
    name text not null,                         -- input, model:N, tool:N:CALL_ID, answer:KEY, fold:N:WHAT; after the end: transcript
    content blob not null,
    created_at integer not null,
    primary key (task_id, name)
) without rowid;

create table steps (
    task_id text not null references tasks (id) on delete cascade,
    name text not null,                         -- its checkpoint's: model:N, tool:N:CALL_ID
    at integer not null,
    facts text not null,                        -- JSON: who was asked, what it cost, which tools it called; no word of what was said
    primary key (task_id, name)
) without rowid;

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
create unique index questions_open on questions (task_id) where answered_at is null;

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
create index webhooks_by_age on webhooks (owner, created_at desc, task_id desc, id desc);

create table runs (
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
create index runs_due on runs (kind, due_at, id) where state = 'queued';
create index runs_leased on runs (lease_until) where state = 'running';
create index runs_lane on runs (lane, id) where ended_at is null;
create unique index runs_lane_head on runs (lane) where state in ('queued', 'running', 'parked');
create unique index runs_turn_of_task on runs (task_id) where ended_at is null and kind in ('turn', 'job');
create index runs_of_task on runs (task_id) where task_id is not null;
create index runs_ended on runs (kind, ended_at) where ended_at is not null;

create table failures (
    run_id integer not null references runs (id) on delete cascade,
    attempt integer not null,
    at integer not null,
    error blob,                                 -- none where it was handed back
    primary key (run_id, attempt)
);

create table messages (
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
create index messages_of_session on messages (session, id);
create index messages_of_task on messages (task_id, id);
create index messages_waiting on messages (task_id, id) where waits = 1;

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

create table batches (
    id text primary key,                        -- the turn that sent the jobs out, or its own
    owner text not null,
    session text not null references sessions (uid),
    generation integer not null default 0,      -- joins so far
    first_end_at integer,
    closed_at integer,
    created_at integer not null
);
create index batches_of_session on batches (session);

create table jobs (
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
    requests integer not null default 0,        -- what it has cost, over all its attempts
    input_tokens integer not null default 0,
    output_tokens integer not null default 0,
    tool_calls integer not null default 0,
    parent text,                                -- the job that sent it out
    depth integer not null default 1,           -- levels below the chat
    plugin text,                                -- the plugin that sent it out
    follow_up blob,                             -- what its present attempt was asked, if it goes on from earlier ones
    knows text,                                 -- a JSON list: the turns that it goes on from
    asked_by text,                              -- the step that asked, if one did
    incognito integer not null default 0 check (incognito in (0, 1)),  -- for good
    deterministic integer not null default 0 check (deterministic in (0, 1)),  -- work without a model
    made_of integer check (made_of in (1, 2, 3)),  -- the lowest tier that its sender had read by then
    unique (owner, key),
    check ((completed_at is null) = (status in ('queued', 'running', 'input_required'))),
    check ((canceled_by is null) or (status = 'canceled')),
    check ((reason is null) or (status = 'failed'))
);
create index jobs_by_age on jobs (owner, created_at desc, id desc);
create index jobs_of_session on jobs (session, created_at desc, id desc);
create index jobs_by_status on jobs (owner, status, created_at desc, id desc);
create index jobs_queued on jobs (owner) where status = 'queued';
create index jobs_task on jobs (task_id);
create index jobs_of_batch on jobs (batch_id);
create index jobs_ended on jobs (completed_at) where completed_at is not null;
create index jobs_asked_by on jobs (asked_by) where asked_by is not null;
create index jobs_of_parent on jobs (parent) where parent is not null;

create table expenses (
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
create index expenses_of_session on expenses (session, cause);
create index expenses_of_job on expenses (job_id) where job_id is not null;
create index expenses_by_age on expenses (at);

create table gists (
    session text primary key references sessions (uid),
    task_id text not null,                      -- the turn that had it made
    upto text not null,                         -- the last turn that it covers, and when that ended
    upto_at integer not null,
    job_ids text not null,                      -- a JSON list: what these turns were told of
    content blob not null,
    created_at integer not null
) without rowid;

create table deliveries (
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
    discarded_at integer,
    discarded_by text,                          -- who gave it up by hand
    primary key (job_id, attempt),
    check (task_id is not null or state <> 'attached'),          -- the turn that told may be gone
    check (task_id is null or state in ('attached', 'delivered')),
    check ((notified_at is not null) = (state = 'delivered'))
) without rowid;
create index deliveries_untold on deliveries (ended_at) where state in ('pending', 'attached');
create index deliveries_pending on deliveries (session, ended_at, job_id) where state = 'pending';
create index deliveries_of_task on deliveries (task_id) where task_id is not null;
create index deliveries_of_session on deliveries (session);

create table members (
    batch_id text not null references batches (id),
    job_id text not null references jobs (id),
    attempt integer not null,
    status text check (status in ('completed', 'failed', 'canceled')),  -- null while it is out
    generation integer,                         -- the join that told it, or was to tell it
    withdrawn integer not null default 0 check (withdrawn in (0, 1)),   -- a retry took it into a batch of its own
    primary key (batch_id, job_id, attempt)
) without rowid;
create index members_of_job on members (job_id, attempt);

create table joins (
    batch_id text not null references batches (id),
    generation integer not null,
    task_id text references tasks (id),         -- the nudge's task, once it was posted
    counts text not null,
    at integer not null,
    primary key (batch_id, generation)
) without rowid;
create index joins_of_task on joins (task_id) where task_id is not null;

create table views (
    task_id text primary key references tasks (id),
    owner text not null,
    session text not null,
    revision integer not null,
    state text not null,
    at integer not null,                        -- whole milliseconds, as clients see it: tasks are listed in this order
    listed integer not null default 1 check (listed in (0, 1))  -- a job's own task is listed only where its context is named
) without rowid;
-- `listed` is in them so that a list is counted without a look at its rows.
create index views_by_time on views (owner, at desc, task_id, listed) where listed = 1;
create index views_by_state on views (owner, state, at desc, task_id, listed) where listed = 1;
create index views_of_session on views (session, at desc, task_id);

create table journal (
    task_id text not null references tasks (id),
    revision integer not null,
    number integer not null,
    kind text not null check (kind in ('status', 'artifact', 'fragment')),
    state text not null,
    artifact integer,                           -- its place in the result
    at integer not null,
    primary key (task_id, revision, number)
) without rowid;

create table events (
    id integer primary key autoincrement,
    uid text not null,                          -- names the row to its seal
    owner text not null,
    session text not null references sessions (uid),
    name text not null,
    data blob not null,
    created_at integer not null
);
create index events_of_owner on events (owner, id);
create index events_of_session on events (session, id);
create index events_by_age on events (created_at);

create table workers (
    id text primary key,
    host text not null,
    pid integer not null,
    started_at integer not null,
    beat_at integer not null,
    swept_at integer not null
);

create table seals (
    key_id text primary key,
    mark blob not null,                         -- a known text, sealed: whoever holds the key can read it
    created_at integer not null
) without rowid;

create table tokens (
    id text primary key,
    owner text not null,
    digest blob not null,                       -- SHA-256 of the secret, which is kept nowhere
    created_at integer not null,
    used_at integer,                            -- at a coarse grain
    revoked_at integer
) without rowid;

create table shares (
    id text primary key,
    session text not null references sessions (uid),
    digest blob not null,                       -- as a token's
    writable integer not null check (writable in (0, 1)),
    created_at integer not null,
    expires_at integer not null,
    revoked_at integer
) without rowid;
create index shares_of_session on shares (session, created_at desc, id desc);

create table share_uses (
    share text not null references shares (id),
    caller text not null,
    uses integer not null,
    first_at integer not null,
    last_at integer not null,
    primary key (share, caller)
) without rowid;

create table tallies (
    name text not null,
    label text not null,
    count integer not null check (count > 0),
    primary key (name, label)
) without rowid;

create table listeners (
    name text primary key,                      -- the plugin's and its own
    heard integer not null,                     -- the number of the last event that it has taken
    holder text,                                -- who tells it
    held_until integer,
    check ((holder is null) = (held_until is null))
) without rowid;
