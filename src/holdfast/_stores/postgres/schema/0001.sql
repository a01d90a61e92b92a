-- The store on PostgreSQL.
--
-- The same tables as in SQLite, under a schema of their own. What belongs to a run is keyed by its
-- number first, so that journal, chunks and inbox can be divided by it (`?partitions=16` in the URL
-- that makes them), or distributed over several machines. Text is
-- compared by bytes ("C"), so that an upgrade of the system's locales cannot damage an index.

CREATE SCHEMA IF NOT EXISTS holdfast;

CREATE TABLE holdfast.schema (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  version integer NOT NULL,
  works_from integer NOT NULL
);

CREATE TABLE holdfast.store (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  store_id text NOT NULL,
  incarnation bigint NOT NULL,
  accepted_through bigint NOT NULL,
  lost text,
  -- How far the store's clock is ahead of the server's: transactions were committed while the
  -- server's time was ahead, and the clock never goes back.
  ahead_us bigint NOT NULL DEFAULT 0
);

CREATE TABLE holdfast.incarnations (
  incarnation bigint PRIMARY KEY,
  at_us bigint NOT NULL,
  actor text NOT NULL,
  accepted text NOT NULL,
  digest bytea NOT NULL
);

CREATE SEQUENCE holdfast.run_numbers;
CREATE SEQUENCE holdfast.owner_numbers;

CREATE TABLE holdfast.owners (
  owner bigint PRIMARY KEY,
  pid bigint NOT NULL,
  started text COLLATE "C" NOT NULL,
  boot_id text COLLATE "C" NOT NULL,
  pid_namespace bigint NOT NULL,
  host text COLLATE "C" NOT NULL,
  lock_inode bigint NOT NULL,
  registered_us bigint NOT NULL,
  digest bytea NOT NULL
);

-- Until when a process is sure to live, and what it is; below zero: it has closed the store.
CREATE TABLE holdfast.pulses (
  owner bigint PRIMARY KEY,
  until_us bigint NOT NULL,
  facts text NOT NULL
) WITH (fillfactor = 50);

-- A step of a running run changes no indexed column, and finds room in its page (a "HOT" update).
CREATE TABLE holdfast.runs (
  run_no bigint PRIMARY KEY,
  namespace text COLLATE "C" NOT NULL,
  run_id text COLLATE "C" NOT NULL,
  flow text COLLATE "C" NOT NULL,
  version text COLLATE "C" NOT NULL,
  status text COLLATE "C" NOT NULL,
  held_reason text COLLATE "C",
  generation bigint NOT NULL,
  epoch bigint NOT NULL,
  owner bigint,
  lease_until_us bigint NOT NULL,
  last_seq bigint NOT NULL,
  head bytea NOT NULL,
  next_chunk bigint NOT NULL,
  input_digest bytea NOT NULL,
  current_step text COLLATE "C",
  steps bigint NOT NULL,
  attempts bigint NOT NULL,
  degraded bigint NOT NULL,
  claims bigint NOT NULL,
  skips text NOT NULL,
  waiting_on text COLLATE "C",
  wake_us bigint,
  usage text NOT NULL,
  tags text NOT NULL,
  created_us bigint NOT NULL,
  updated_us bigint NOT NULL,
  queue text COLLATE "C",
  priority bigint,
  limit_key text COLLATE "C",
  -- Up to which message a waiting run has looked; a later one wakes it.
  heard bigint,
  -- The run that started this one, and the top of the family.
  parent text COLLATE "C",
  root text COLLATE "C",
  -- Of a fork: where it came from, and from which chunk on its values are its own.
  origin text,
  -- When its journal was removed; the row stays, so that the id is not given again.
  deleted_us bigint,
  digest bytea NOT NULL,
  id_hash bigint NOT NULL,
  UNIQUE (namespace, run_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The second path by which the absence of a run is confirmed.
CREATE INDEX runs_by_hash ON holdfast.runs (id_hash);
CREATE INDEX runs_waiting ON holdfast.runs (waiting_on) WHERE waiting_on IS NOT NULL;
-- Runs that are held until something else happens: a key is settled, other code is deployed.
CREATE INDEX runs_held_on ON holdfast.runs (namespace, waiting_on, run_no)
  WHERE status = 'held' AND waiting_on IS NOT NULL;
CREATE INDEX runs_by_parent ON holdfast.runs (namespace, parent, run_no) WHERE parent IS NOT NULL;
-- The forks of a run, by the text that says where they came from.
CREATE INDEX runs_by_origin ON holdfast.runs (namespace, origin COLLATE "C")
  WHERE origin IS NOT NULL;
-- Workers search these. Runs that wait for a person or a timer may be many, and are not among
-- those that can be taken at any time: one whose time has come is found by its time, and one that
-- got a message by the message.
CREATE INDEX runs_ready ON holdfast.runs
  (namespace, (coalesce(queue, 'default')), (-coalesce(priority, 0)), run_no)
  WHERE owner IS NULL AND status IN ('queued', 'running') AND wake_us IS NULL;
CREATE INDEX runs_timed ON holdfast.runs (namespace, (coalesce(queue, 'default')), wake_us)
  WHERE owner IS NULL AND status IN ('queued', 'running', 'waiting') AND wake_us IS NOT NULL;
-- Runs at work, by owner: found when an owner died, counted for the limits of a queue.
CREATE INDEX runs_owned ON holdfast.runs (owner, namespace, (coalesce(queue, 'default')))
  WHERE owner IS NOT NULL AND status IN ('queued', 'running', 'waiting');
-- Runs that need a person, by queue.
CREATE INDEX runs_stopped ON holdfast.runs (namespace, (coalesce(queue, 'default')), run_no)
  WHERE status IN ('held', 'failed');

CREATE TABLE holdfast.journal (
  run_no bigint NOT NULL,
  seq bigint NOT NULL,
  at_us bigint NOT NULL,
  started_us bigint,
  attempt bigint NOT NULL,
  position bigint,
  kind text COLLATE "C" NOT NULL,
  step text COLLATE "C",
  args_digest bytea,
  digest bytea NOT NULL,
  body text NOT NULL,
  PRIMARY KEY (run_no, seq)
); -- divided by run number

CREATE TABLE holdfast.chunks (
  run_no bigint NOT NULL,
  number bigint NOT NULL,
  digest bytea NOT NULL,
  body text NOT NULL,
  PRIMARY KEY (run_no, number)
); -- divided by run number

CREATE TABLE holdfast.keys (
  namespace text COLLATE "C" NOT NULL,
  effect text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  state text COLLATE "C" NOT NULL,
  run_no bigint NOT NULL,
  run_id text COLLATE "C" NOT NULL,
  step text COLLATE "C" NOT NULL,
  generation bigint NOT NULL,
  args_digest bytea NOT NULL,
  result_seq bigint,
  updated_us bigint NOT NULL,
  digest bytea NOT NULL,
  key_hash bigint NOT NULL,
  PRIMARY KEY (namespace, effect, key)
);

CREATE INDEX keys_by_hash ON holdfast.keys (key_hash);
CREATE INDEX keys_by_run ON holdfast.keys (run_no);

CREATE TABLE holdfast.inbox (
  run_no bigint NOT NULL,
  number bigint NOT NULL,
  message_id text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  actor text COLLATE "C" NOT NULL,
  at_us bigint NOT NULL,
  body text NOT NULL,
  taken_seq bigint,
  digest bytea NOT NULL,
  PRIMARY KEY (run_no, number),
  UNIQUE (run_no, message_id)
); -- divided by run number

CREATE INDEX inbox_untaken ON holdfast.inbox (run_no, number) WHERE taken_seq IS NULL;

-- Open questions of runs to people.
CREATE TABLE holdfast.questions (
  run_no bigint NOT NULL,
  name text COLLATE "C" NOT NULL,
  number bigint NOT NULL,
  kind text COLLATE "C" NOT NULL,
  asked_of text COLLATE "C",
  body text NOT NULL,
  asked_us bigint NOT NULL,
  until_us bigint,
  digest bytea NOT NULL,
  PRIMARY KEY (run_no, name)
);

CREATE INDEX questions_by_time ON holdfast.questions (asked_us);

-- Accounts: the limits of a family of runs, and its spending.
CREATE TABLE holdfast.accounts (
  namespace text COLLATE "C" NOT NULL,
  root text COLLATE "C" NOT NULL,
  opened_us bigint NOT NULL,
  usd_nanos bigint,
  tokens bigint,
  steps bigint,
  wall_us bigint,
  spent_usd_nanos bigint NOT NULL,
  spent_tokens bigint NOT NULL,
  spent_steps bigint NOT NULL,
  digest bytea NOT NULL,
  root_hash bigint NOT NULL,
  PRIMARY KEY (namespace, root)
) WITH (fillfactor = 50);

CREATE INDEX accounts_by_hash ON holdfast.accounts (root_hash);

-- Values outside any journal. One that was removed keeps its row, since its versions go on.
CREATE TABLE holdfast.memos (
  namespace text COLLATE "C" NOT NULL,
  space text COLLATE "C" NOT NULL,
  key text COLLATE "C" NOT NULL,
  value text,
  expires_us bigint,
  version bigint NOT NULL,
  updated_us bigint NOT NULL,
  run_id text COLLATE "C",
  digest bytea NOT NULL,
  key_hash bigint NOT NULL,
  PRIMARY KEY (namespace, space, key)
);

CREATE INDEX memos_by_hash ON holdfast.memos (key_hash);

CREATE TABLE holdfast.queues (
  namespace text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  concurrency bigint,
  concurrency_per_key bigint,
  rate bigint,
  rate_per_key bigint,
  period_us bigint NOT NULL,
  paused bigint NOT NULL,
  digest bytea NOT NULL,
  PRIMARY KEY (namespace, queue)
);

-- First claims of runs in queues that limit them, for one period.
CREATE TABLE holdfast.begun (
  namespace text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  at_us bigint NOT NULL,
  run_no bigint NOT NULL,
  limit_key text COLLATE "C",
  PRIMARY KEY (namespace, queue, at_us, run_no)
);

CREATE TABLE holdfast.schedules (
  namespace text COLLATE "C" NOT NULL,
  name text COLLATE "C" NOT NULL,
  flow text COLLATE "C" NOT NULL,
  spec text NOT NULL,
  cursor_us bigint NOT NULL,
  paused bigint NOT NULL,
  digest bytea NOT NULL,
  PRIMARY KEY (namespace, name)
);

-- The counts of one process for one flow in one minute, as JSON; flow '' is the process itself. A measure
-- that is written again is replaced by a fuller one.
CREATE TABLE holdfast.measures (
  namespace text COLLATE "C" NOT NULL,
  at_us bigint NOT NULL,
  process text COLLATE "C" NOT NULL,
  flow text COLLATE "C" NOT NULL,
  body text NOT NULL,
  digest bytea NOT NULL,
  PRIMARY KEY (namespace, at_us, process, flow)
);

-- For people, with any SQL tool -------------------------------------------------------------------

-- The journal as text: a value that stands in a chunk is shown from there.
CREATE VIEW holdfast.entries AS
SELECT j.run_no, j.seq, j.kind, j.step, j.attempt, j.at_us, j.started_us,
  (j.body::json ->> 'final')::boolean AS is_final,
  left(coalesce(
    (SELECT coalesce(c.body::json ->> 'plain', c.body::json ->> 'items', c.body)
     FROM holdfast.chunks AS c
     WHERE c.run_no = j.run_no AND c.number = coalesce(
       j.body::json -> 'args' ->> 'chunk', j.body::json -> 'args' ->> 'list')::bigint),
    j.body::json -> 'args' ->> 'plain', j.body::json ->> 'args'), 200) AS input,
  left(coalesce(
    (SELECT coalesce(c.body::json ->> 'plain', c.body::json ->> 'items', c.body)
     FROM holdfast.chunks AS c
     WHERE c.run_no = j.run_no AND c.number = coalesce(v.value ->> 'chunk', v.value ->> 'list')::bigint),
    v.value ->> 'plain', v.value #>> '{}'), 200) AS output,
  (j.body::json -> 'error' ->> 'type') || ': ' || (j.body::json -> 'error' ->> 'message') AS error
FROM holdfast.journal AS j
CROSS JOIN LATERAL (
  SELECT coalesce(j.body::json -> 'result', j.body::json -> 'value', j.body::json -> 'state') AS value
) AS v;

-- The events of a run, one per line; a start that was written with its outcome has a line of its own.
CREATE VIEW holdfast.log AS
SELECT r.run_id, e.seq, e.kind, to_timestamp(e.at_us / 1000000.0) AS at, e.step, e.attempt, e.input,
  e.output, e.error, r.namespace
FROM (
  SELECT run_no, seq - 1 AS seq, 'step_started' AS kind, step, attempt, started_us AS at_us, input,
    NULL AS output, NULL AS error
  FROM holdfast.entries WHERE started_us IS NOT NULL
  UNION ALL
  SELECT run_no, seq, kind, step, attempt, at_us,
    CASE WHEN started_us IS NULL THEN input END, output, error
  FROM holdfast.entries
) AS e
JOIN holdfast.runs AS r ON r.run_no = e.run_no
ORDER BY e.run_no, e.seq;

-- Each step of each run, as its last entry left it.
CREATE VIEW holdfast.steps AS
SELECT r.run_id, t.step,
  CASE
    WHEN e.kind IN ('step_started', 'step_progressed') THEN 'running'
    WHEN e.kind = 'step_failed' AND NOT e.is_final THEN 'retrying'
    WHEN e.kind = 'skipped_duplicate' THEN 'skipped_duplicate'
    ELSE substr(e.kind, 6)
  END AS status,
  t.attempts, greatest(t.attempts - 1, 0) AS retry_count,
  to_timestamp(t.first_us / 1000000.0) AS started_at,
  CASE WHEN e.kind NOT IN ('step_started', 'step_progressed', 'step_in_doubt')
    THEN to_timestamp(e.at_us / 1000000.0) END AS ended_at,
  (SELECT f.error FROM holdfast.entries AS f
   WHERE f.run_no = t.run_no AND f.step = t.step AND f.error IS NOT NULL
   ORDER BY f.seq DESC LIMIT 1) AS last_error,
  r.namespace
FROM (
  SELECT run_no, step, max(seq) AS last_seq, min(coalesce(started_us, at_us)) AS first_us,
    count(*) FILTER (WHERE kind = 'step_started' OR started_us IS NOT NULL) AS attempts
  FROM holdfast.journal
  WHERE step IS NOT NULL AND (starts_with(kind, 'step_') OR kind = 'skipped_duplicate')
  GROUP BY run_no, step
) AS t
JOIN holdfast.runs AS r ON r.run_no = t.run_no
JOIN holdfast.entries AS e ON e.run_no = t.run_no AND e.seq = t.last_seq
ORDER BY t.run_no, t.first_us, t.last_seq;

-- Where each run is: its current step, and the last state that a loop saved.
CREATE VIEW holdfast.state AS
SELECT r.run_id, r.status, r.current_step,
  (SELECT e.output FROM holdfast.entries AS e WHERE e.run_no = r.run_no AND e.kind = 'state_saved'
   ORDER BY e.seq DESC LIMIT 1) AS last_snapshot,
  to_timestamp(r.updated_us / 1000000.0) AS updated_at, r.namespace
FROM holdfast.runs AS r
WHERE r.deleted_us IS NULL
ORDER BY r.run_no;
