-- Messages that are to be taken up by a turn at work, and which they were taken up by.

alter table tasks add column steers text;        -- the turn that this message is to be folded into, between two of its steps
create index tasks_steering on tasks (steers) where steers is not null;
create index tasks_folded on tasks (folded_into) where folded_into is not null;
