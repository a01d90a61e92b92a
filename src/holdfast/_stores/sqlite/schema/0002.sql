-- Version 2: fleets. Queues with limits, the pulses of processes, and schedules.
--
-- It only adds. A process that knows version 1 goes on with the runs that use none of it: the new
-- columns are no part of such a run's digest (see RunRow.expected_digest).

-- The version of the schema, and from which version on a process can work with it: what may be there
-- of an older version beside us. The version stands in the header of the file too.
CREATE TABLE schema (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  version INTEGER NOT NULL,
  works_from INTEGER NOT NULL,
  digest BLOB NOT NULL
);

ALTER TABLE runs ADD COLUMN queue TEXT;
ALTER TABLE runs ADD COLUMN priority INTEGER;
ALTER TABLE runs ADD COLUMN limit_key TEXT;

-- What workers look through: runs that nobody owns, in the order in which they are taken. What
-- decides whether a run may be taken stands in the index, so that one that may not is passed over
-- without being read.
CREATE INDEX runs_ready ON runs (namespace, coalesce(queue, 'default'), -coalesce(priority, 0),
  run_no, status, wake_us, epoch, limit_key, flow, version)
WHERE owner IS NULL AND status IN ('queued', 'running', 'waiting');
-- Runs at work, by owner: found when an owner died, counted for the limits of a queue.
CREATE INDEX runs_owned ON runs (owner, namespace, coalesce(queue, 'default'),
  -coalesce(priority, 0), run_no, limit_key)
WHERE owner IS NOT NULL AND status IN ('queued', 'running', 'waiting');
-- Runs that wait for a person, counted by queue.
CREATE INDEX runs_stopped ON runs (namespace, coalesce(queue, 'default'), status, held_reason)
WHERE status IN ('failed', 'held');
-- Messages that are still to be read: they wake the run that they were sent to.
CREATE INDEX inbox_untaken ON inbox (run_no) WHERE taken_seq IS NULL;
-- The business keys that a run takes with it when it is copied to another store.
CREATE INDEX keys_of_run ON keys (run_no);

-- Until when a process is sure to live, and what it is. Says nothing about any history.
CREATE TABLE pulses (
  owner INTEGER PRIMARY KEY,
  until_us INTEGER NOT NULL,
  facts TEXT NOT NULL
);

CREATE TABLE queues (
  namespace TEXT NOT NULL,
  queue TEXT NOT NULL,
  concurrency INTEGER,
  per_key INTEGER,
  rate INTEGER,
  per_key_rate INTEGER,
  period_us INTEGER NOT NULL,
  paused INTEGER NOT NULL,
  digest BLOB NOT NULL,
  PRIMARY KEY (namespace, queue)
) WITHOUT ROWID;

-- First claims of runs in queues that limit them, for one period.
CREATE TABLE begun (
  namespace TEXT NOT NULL,
  queue TEXT NOT NULL,
  at_us INTEGER NOT NULL,
  run_no INTEGER NOT NULL,
  limit_key TEXT,
  PRIMARY KEY (namespace, queue, at_us, run_no)
) WITHOUT ROWID;

CREATE TABLE schedules (
  namespace TEXT NOT NULL,
  name TEXT NOT NULL,
  flow TEXT NOT NULL,
  spec TEXT NOT NULL,
  cursor_us INTEGER NOT NULL,
  paused INTEGER NOT NULL,
  digest BLOB NOT NULL,
  PRIMARY KEY (namespace, name)
) WITHOUT ROWID;
