-- Access tokens, the shares of sessions and their uses, and who acted in a session that is another's; lists that are
-- counted fast.

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

alter table tasks add column initiated_by text;  -- who sent the message that made it, where that was not its owner

-- With `listed` in them, a list is counted without a look at its rows.
drop index views_by_time;
drop index views_by_state;
create index views_by_time on views (owner, at desc, task_id, listed) where listed = 1;
create index views_by_state on views (owner, state, at desc, task_id, listed) where listed = 1;
