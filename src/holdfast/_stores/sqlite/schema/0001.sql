-- The store, version 1.
--
-- Truth is the journal: append-only, one row per entry (or per joined pair of entries), chained by
-- digests. `runs` has one mutable row per run: who may act next, and how far it is. `chunks` keeps
-- large values once per run. `keys` are claimed business keys, `inbox` what was said to a run,
-- `owners` the processes that may own runs, `store` the one row that every commit changes.
--
-- A run is known by a number inside: the id of a journal or chunk row is run_no << 32 | number, so
-- that the rows of a run stand together and need no second index. The views at the end show text.

CREATE TABLE store (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  store_id TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  commits INTEGER NOT NULL,
  head BLOB NOT NULL,
  clock_us INTEGER NOT NULL,
  last_run_no INTEGER NOT NULL,
  last_owner INTEGER NOT NULL,
  adopted_through INTEGER NOT NULL,
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
  digest BLOB NOT NULL,
  id_hash INTEGER NOT NULL,
  UNIQUE (namespace, run_id)
);

-- The second path by which the absence of a run is confirmed.
CREATE INDEX runs_by_hash ON runs (id_hash);
-- What workers look through; a step of a running run does not touch it.
CREATE INDEX runs_open ON runs (status, wake_us) WHERE status IN ('queued', 'running', 'waiting');
CREATE INDEX runs_waiting ON runs (waiting_on) WHERE waiting_on IS NOT NULL;

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

-- What happened, line by line; a start that was written with its outcome has a line of its own.
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
ORDER BY r.run_no;
