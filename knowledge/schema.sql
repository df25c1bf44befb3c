-- The knowledge store: what was reported and read in, whole, and an index to find it by.
--
--   document     one row a text: whose it is, where it came from, how far to trust it. Its (owner, key) is what
--                makes putting it twice the same as once. No owner: shared with everybody.
--   body         the text itself, byte for byte. Apart, so that a search that passes many documents reads none.
--   chunk        what is searched: a span of a body, its words set apart for the tokenizer. Its id is
--                document_id << 20 | number, so that the index alone tells which document a match is in.
--   chunk_index  the words of the chunks. It holds no text; the triggers keep it equal to `chunk`.
--
--   erased       jobs whose reports were erased, and when: what is from before and comes late is not taken in.
--
-- A document is standing or superseded. A superseded one keeps its row and its body, and has no chunks: what must
-- not be found is not there to be found. Times are microseconds, UTC, and come from the caller.

create table document (
    id                integer primary key autoincrement,
    owner             text check (owner <> ''),
    key               text not null,
    source            text not null,
    source_type       text not null,
    heading           text not null,
    trust             integer not null check (trust in (1, 2, 3)),
    made_of           integer check (made_of in (1, 2, 3)),
    job_id            text,
    created_at        integer not null,
    chars             integer not null,
    chunks            integer not null,
    superseded_at     integer,
    superseded_reason text,
    check ((superseded_at is null) = (superseded_reason is null)),
    check (superseded_at is null or chunks = 0)
) strict;

create unique index document_key on document (owner, key);
create unique index document_shared on document (key) where owner is null; -- to the one above, nulls all differ
create unique index document_standing on document (owner, job_id) where job_id is not null and superseded_at is null;
create index document_source on document (owner, source);
create index document_owner on document (owner);
create index document_job on document (owner, job_id) where job_id is not null;

create table body (
    document_id integer primary key references document (id) on delete cascade,
    text        text not null
) strict;

create table chunk (
    id      integer primary key,
    heading text not null,
    text    text not null,
    start   integer not null
) strict;

create virtual table chunk_index using fts5 (
    heading, text,
    content = 'chunk', content_rowid = 'id',
    tokenize = "porter unicode61 remove_diacritics 2 categories 'L* N* Co So'"
);

create trigger chunk_added after insert on chunk begin
    insert into chunk_index (rowid, heading, text) values (new.id, new.heading, new.text);
end;

create trigger chunk_removed after delete on chunk begin
    insert into chunk_index (chunk_index, rowid, heading, text) values ('delete', old.id, old.heading, old.text);
end;

create table erased (
    job_id text primary key,
    at     integer not null
) strict, without rowid;
