-- Version 3: time, people and control. What a run waits for, asks, spends and remembers.
--
-- It only adds. The new columns are no part of a run's digest while it does not use them.

-- Up to which message a waiting run has looked; a later one wakes it.
ALTER TABLE runs ADD COLUMN heard INTEGER;
-- The run that started this one, and the top of the family.
ALTER TABLE runs ADD COLUMN parent TEXT;
ALTER TABLE runs ADD COLUMN root TEXT;
-- Of a fork: where it came from, and from which chunk on its values are its own.
ALTER TABLE runs ADD COLUMN origin TEXT;
-- When its journal was removed; the row stays, so that the id is not given again.
ALTER TABLE runs ADD COLUMN deleted_us INTEGER;

-- The children of a run.
CREATE INDEX runs_by_parent ON runs (namespace, parent) WHERE parent IS NOT NULL;

-- The forks of a run, by the text that says where they came from.
CREATE INDEX runs_by_origin ON runs (namespace, origin) WHERE origin IS NOT NULL;

-- What workers look through, in two parts: runs that may be taken at any time, and those that wait
-- for a time or a message. Of the second kind there may be many: one whose time has come is found by
-- its time, one that was spoken to by the message, and the others are not read. (A process that
-- still looks through the index of the version before takes nothing more: see WORKS_FROM.)
DROP INDEX runs_open;
DROP INDEX runs_ready;
CREATE INDEX runs_ready ON runs (namespace, coalesce(queue, 'default'), -coalesce(priority, 0),
  run_no, epoch, limit_key, flow, version)
WHERE owner IS NULL AND status IN ('queued', 'running') AND wake_us IS NULL;
CREATE INDEX runs_asleep ON runs (namespace, coalesce(queue, 'default'), wake_us,
  -coalesce(priority, 0), run_no, epoch, limit_key, flow, version)
WHERE owner IS NULL AND status IN ('queued', 'running', 'waiting')
  AND (status = 'waiting' OR wake_us IS NOT NULL);

-- What runs ask people, while it is open. Each is found by two ways: the table, and its names.
CREATE TABLE questions (
  id INTEGER PRIMARY KEY,
  run_no INTEGER NOT NULL REFERENCES runs,
  name TEXT NOT NULL,
  number INTEGER NOT NULL,
  kind TEXT NOT NULL,
  asked_of TEXT,
  body TEXT NOT NULL,
  asked_us INTEGER NOT NULL,
  until_us INTEGER,
  digest BLOB NOT NULL,
  UNIQUE (run_no, name)
);

-- What families of runs may spend, and have spent. That there is none means "no limit", so it is
-- confirmed by a second path.
CREATE TABLE pots (
  id INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  root TEXT NOT NULL,
  opened_us INTEGER NOT NULL,
  usd_nanos INTEGER,
  tokens INTEGER,
  steps INTEGER,
  wall_us INTEGER,
  spent_usd_nanos INTEGER NOT NULL,
  spent_tokens INTEGER NOT NULL,
  spent_steps INTEGER NOT NULL,
  digest BLOB NOT NULL,
  root_hash INTEGER NOT NULL,
  UNIQUE (namespace, root)
);

CREATE INDEX pots_by_hash ON pots (root_hash);

-- Values outside any journal. One that was removed keeps its row, since its versions go on.
CREATE TABLE memos (
  id INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  space TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT,
  expires_us INTEGER,
  version INTEGER NOT NULL,
  updated_us INTEGER NOT NULL,
  run_id TEXT,
  digest BLOB NOT NULL,
  key_hash INTEGER NOT NULL,
  UNIQUE (namespace, space, key)
);

CREATE INDEX memos_by_hash ON memos (key_hash);

-- For people: a run whose journal was removed is nowhere.
DROP VIEW state;
CREATE VIEW state AS
SELECT r.run_id, r.status, r.current_step,
  (SELECT e.output FROM entries AS e WHERE e.run_no = r.run_no AND e.kind = 'state_saved'
   ORDER BY e.seq DESC LIMIT 1) AS last_snapshot,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.updated_us / 1000000.0, 'unixepoch') AS updated_at,
  r.namespace
FROM runs AS r
WHERE r.deleted_us IS NULL
ORDER BY r.run_no;
