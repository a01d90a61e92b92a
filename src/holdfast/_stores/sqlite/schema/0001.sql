-- The store.
--
-- Truth is the journal: append-only, one row per entry (or per joined pair of entries), chained by
-- digests. `runs` has one mutable row per run: who may act next, and how far it is. `chunks` keeps
-- large values once per run. `keys` are claimed business keys, `inbox` the messages to a run,
-- `owners` the processes that may own runs, `store` the one row that every commit changes.
--
-- A run is known by a number inside: the id of a journal or chunk row is run_no << 32 | number, so
-- that the rows of a run stand together and need no second index. The views at the end show text.

-- The version of the schema, and from which version on a process can work with it: what may be there
-- of an older version beside us. The version stands in the header of the file too.
CREATE TABLE schema (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  version INTEGER NOT NULL,
  works_from INTEGER NOT NULL,
  digest BLOB NOT NULL
);

CREATE TABLE store (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  store_id TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  commits INTEGER NOT NULL,
  head BLOB NOT NULL,
  clock_us INTEGER NOT NULL,
  last_run_no INTEGER NOT NULL,
  last_owner INTEGER NOT NULL,
  accepted_through INTEGER NOT NULL,
  is_copy INTEGER NOT NULL,
  digest BLOB NOT NULL
);

CREATE TABLE incarnations (
  incarnation INTEGER PRIMARY KEY,
  at_us INTEGER NOT NULL,
  actor TEXT NOT NULL,
  accepted TEXT NOT NULL,
  digest BLOB NOT NULL
);

CREATE TABLE owners (
  owner INTEGER PRIMARY KEY,
  pid INTEGER NOT NULL,
  started TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  pid_namespace INTEGER NOT NULL,
  host TEXT NOT NULL,
  lock_inode INTEGER NOT NULL,
  registered_us INTEGER NOT NULL,
  digest BLOB NOT NULL
);

-- Until when a process is sure to live, and what it is. Says nothing about any history.
CREATE TABLE pulses (
  owner INTEGER PRIMARY KEY,
  until_us INTEGER NOT NULL,
  facts TEXT NOT NULL
);

CREATE TABLE runs (
  run_no INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  run_id TEXT NOT NULL,
  flow TEXT NOT NULL,
  version TEXT NOT NULL,
  status TEXT NOT NULL,
  held_reason TEXT,
  generation INTEGER NOT NULL,
  epoch INTEGER NOT NULL,
  owner INTEGER,
  lease_until_us INTEGER NOT NULL,
  last_seq INTEGER NOT NULL,
  head BLOB NOT NULL,
  next_chunk INTEGER NOT NULL,
  input_digest BLOB NOT NULL,
  current_step TEXT,
  steps INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  degraded INTEGER NOT NULL,
  claims INTEGER NOT NULL,
  skips TEXT NOT NULL,
  waiting_on TEXT,
  wake_us INTEGER,
  usage TEXT NOT NULL,
  tags TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  updated_us INTEGER NOT NULL,
  queue TEXT,
  priority INTEGER,
  limit_key TEXT,
  -- Up to which message a waiting run has looked; a later one wakes it.
  heard INTEGER,
  -- The run that started this one, and the top of the family.
  parent TEXT,
  root TEXT,
  -- Of a fork: where it came from, and from which chunk on its values are its own.
  origin TEXT,
  -- When its journal was removed; the row stays, so that the id is not given again.
  deleted_us INTEGER,
  digest BLOB NOT NULL,
  id_hash INTEGER NOT NULL,
  UNIQUE (namespace, run_id)
);

-- The second path by which the absence of a run is confirmed.
CREATE INDEX runs_by_hash ON runs (id_hash);

CREATE INDEX runs_waiting ON runs (waiting_on) WHERE waiting_on IS NOT NULL;

-- Runs that are held until something else happens: a key is settled, other code is deployed.
CREATE INDEX runs_held_on ON runs (namespace, waiting_on, run_no)
WHERE status = 'held' AND waiting_on IS NOT NULL;

-- The children of a run.
CREATE INDEX runs_by_parent ON runs (namespace, parent) WHERE parent IS NOT NULL;

-- The forks of a run, by the text that says where they came from.
CREATE INDEX runs_by_origin ON runs (namespace, origin) WHERE origin IS NOT NULL;

-- Workers search these two: runs that may be taken at any time, in the order in which they are
-- taken, and those that wait for a time or a message. Of the second kind there may be many:
-- one whose time has come is found by its time, one that got a message by the message, and the others
-- are not read. What decides whether a run may be taken stands in the index, so that one that may not
-- is passed over without being read. A step of a running run touches none of these.
CREATE INDEX runs_ready ON runs (namespace, coalesce(queue, 'default'), -coalesce(priority, 0),
  run_no, epoch, limit_key, flow, version)
WHERE owner IS NULL AND status IN ('queued', 'running') AND wake_us IS NULL;
CREATE INDEX runs_asleep ON runs (namespace, coalesce(queue, 'default'), wake_us,
  -coalesce(priority, 0), run_no, epoch, limit_key, flow, version)
WHERE owner IS NULL AND status IN ('queued', 'running', 'waiting')
  AND (status = 'waiting' OR wake_us IS NOT NULL);

-- Runs at work, by owner: found when an owner died, counted for the limits of a queue.
CREATE INDEX runs_owned ON runs (owner, namespace, coalesce(queue, 'default'),
  -coalesce(priority, 0), run_no, limit_key)
WHERE owner IS NOT NULL AND status IN ('queued', 'running', 'waiting');

-- Runs that wait for a person, counted by queue.
CREATE INDEX runs_stopped ON runs (namespace, coalesce(queue, 'default'), status, held_reason)
WHERE status IN ('failed', 'held');

CREATE TABLE journal (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  step TEXT,
  attempt INTEGER NOT NULL,
  position INTEGER,
  at_us INTEGER NOT NULL,
  started_us INTEGER,
  args_digest BLOB,
  digest BLOB NOT NULL,
  body TEXT NOT NULL
);

CREATE TABLE chunks (
  id INTEGER PRIMARY KEY,
  digest BLOB NOT NULL,
  body TEXT NOT NULL
);

CREATE TABLE keys (
  id INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  effect TEXT NOT NULL,
  key TEXT NOT NULL,
  state TEXT NOT NULL,
  run_no INTEGER NOT NULL REFERENCES runs,
  run_id TEXT NOT NULL,
  step TEXT NOT NULL,
  generation INTEGER NOT NULL,
  args_digest BLOB NOT NULL,
  result_seq INTEGER,
  updated_us INTEGER NOT NULL,
  digest BLOB NOT NULL,
  key_hash INTEGER NOT NULL,
  UNIQUE (namespace, effect, key)
);

CREATE INDEX keys_by_hash ON keys (key_hash);

-- The business keys that a run takes with it when it is copied to another store.
CREATE INDEX keys_of_run ON keys (run_no);

CREATE TABLE inbox (
  id INTEGER PRIMARY KEY,
  run_no INTEGER NOT NULL REFERENCES runs,
  message_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  actor TEXT NOT NULL,
  at_us INTEGER NOT NULL,
  body TEXT NOT NULL,
  taken_seq INTEGER,
  digest BLOB NOT NULL,
  UNIQUE (run_no, message_id)
);

-- Messages that are still to be read: they wake the run that they were sent to.
CREATE INDEX inbox_untaken ON inbox (run_no) WHERE taken_seq IS NULL;

-- Open questions of runs to people. Each is found in two ways: by the table, and by its name.
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

-- Accounts: the limits of a family of runs, and its spending. No account means "no limit", so an
-- absence is confirmed by a second path.
CREATE TABLE accounts (
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

CREATE INDEX accounts_by_hash ON accounts (root_hash);

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

CREATE TABLE queues (
  namespace TEXT NOT NULL,
  queue TEXT NOT NULL,
  concurrency INTEGER,
  concurrency_per_key INTEGER,
  rate INTEGER,
  rate_per_key INTEGER,
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

-- The counts of one process for one flow in one minute, as JSON; flow '' is the process itself. A measure
-- that is written again is replaced by a fuller one.
CREATE TABLE measures (
  id INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  at_us INTEGER NOT NULL,
  process TEXT NOT NULL,
  flow TEXT NOT NULL,
  body TEXT NOT NULL,
  digest BLOB NOT NULL,
  UNIQUE (namespace, at_us, process, flow)
);

-- For people, with any SQL tool -------------------------------------------------------------------

-- The journal as text: a value that stands in a chunk is shown from there.
CREATE VIEW entries AS
SELECT j.id >> 32 AS run_no, j.id & 4294967295 AS seq, j.kind, j.step, j.attempt, j.at_us,
  j.started_us, json_extract(j.body, '$.final') AS is_final,
  substr(coalesce(
    (SELECT coalesce(json_extract(c.body, '$.plain'), json_extract(c.body, '$.items'), c.body)
     FROM chunks AS c
     WHERE c.id = ((j.id >> 32) << 32) + coalesce(json_extract(j.body, '$.args.chunk'),
       json_extract(j.body, '$.args.list'))),
    json_extract(j.body, '$.args.plain'), json_extract(j.body, '$.args')), 1, 200) AS input,
  substr(coalesce(
    (SELECT coalesce(json_extract(c.body, '$.plain'), json_extract(c.body, '$.items'), c.body)
     FROM chunks AS c
     WHERE c.id = ((j.id >> 32) << 32) + coalesce(json_extract(j.body, '$.result.chunk'),
       json_extract(j.body, '$.result.list'), json_extract(j.body, '$.value.chunk'),
       json_extract(j.body, '$.value.list'), json_extract(j.body, '$.state.chunk'),
       json_extract(j.body, '$.state.list'))),
    json_extract(j.body, '$.result.plain'), json_extract(j.body, '$.result'),
    json_extract(j.body, '$.value.plain'), json_extract(j.body, '$.value'),
    json_extract(j.body, '$.state.plain'), json_extract(j.body, '$.state')), 1, 200) AS output,
  json_extract(j.body, '$.error.type') || ': ' || json_extract(j.body, '$.error.message') AS error
FROM journal AS j;

-- The events of a run, one per line; a start that was written with its outcome has a line of its own.
CREATE VIEW log AS
SELECT r.run_id, e.seq, e.kind,
  strftime('%Y-%m-%dT%H:%M:%fZ', e.at_us / 1000000.0, 'unixepoch') AS at,
  e.step, e.attempt, e.input, e.output, e.error, r.namespace
FROM (
  SELECT run_no, seq - 1 AS seq, 'step_started' AS kind, step, attempt, started_us AS at_us, input,
    NULL AS output, NULL AS error
  FROM entries WHERE started_us IS NOT NULL
  UNION ALL
  SELECT run_no, seq, kind, step, attempt, at_us,
    CASE WHEN started_us IS NULL THEN input END, output, error
  FROM entries
) AS e
JOIN runs AS r ON r.run_no = e.run_no
ORDER BY e.run_no, e.seq;

-- Each step of each run, as its last entry left it.
CREATE VIEW steps AS
SELECT r.run_id, t.step,
  CASE
    WHEN e.kind IN ('step_started', 'step_progressed') THEN 'running'
    WHEN e.kind = 'step_failed' AND e.is_final = 0 THEN 'retrying'
    WHEN e.kind = 'skipped_duplicate' THEN 'skipped_duplicate'
    ELSE substr(e.kind, 6)
  END AS status,
  t.attempts, max(t.attempts - 1, 0) AS retry_count,
  strftime('%Y-%m-%dT%H:%M:%fZ', t.first_us / 1000000.0, 'unixepoch') AS started_at,
  CASE WHEN e.kind NOT IN ('step_started', 'step_progressed', 'step_in_doubt')
    THEN strftime('%Y-%m-%dT%H:%M:%fZ', e.at_us / 1000000.0, 'unixepoch') END AS ended_at,
  (SELECT f.error FROM entries AS f
   WHERE f.run_no = t.run_no AND f.step = t.step AND f.error IS NOT NULL
   ORDER BY f.seq DESC LIMIT 1) AS last_error,
  r.namespace
FROM (
  SELECT id >> 32 AS run_no, step, max(id) & 4294967295 AS last_seq,
    min(coalesce(started_us, at_us)) AS first_us,
    sum(kind = 'step_started' OR started_us IS NOT NULL) AS attempts
  FROM journal
  WHERE step IS NOT NULL AND (kind LIKE 'step!_%' ESCAPE '!' OR kind = 'skipped_duplicate')
  GROUP BY id >> 32, step
) AS t
JOIN runs AS r ON r.run_no = t.run_no
JOIN entries AS e ON e.run_no = t.run_no AND e.seq = t.last_seq
ORDER BY t.run_no, t.first_us, t.last_seq;

-- Where each run is: its current step, and the last state that a loop saved.
CREATE VIEW state AS
SELECT r.run_id, r.status, r.current_step,
  (SELECT e.output FROM entries AS e WHERE e.run_no = r.run_no AND e.kind = 'state_saved'
   ORDER BY e.seq DESC LIMIT 1) AS last_snapshot,
  strftime('%Y-%m-%dT%H:%M:%fZ', r.updated_us / 1000000.0, 'unixepoch') AS updated_at,
  r.namespace
FROM runs AS r
WHERE r.deleted_us IS NULL
ORDER BY r.run_no;
