-- Rollbacks are facts of the log and nothing else: the revisions that they restored are retained for ever, so they are
-- looked for whenever it is asked which revisions can be gone back to. There are few of them among many events.
create index events_rolled_back on events (stream_id) where type = 'domain.rolled_back';
