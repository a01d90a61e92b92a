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
