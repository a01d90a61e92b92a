-- Version 3: time, people and control. What a run waits for, asks, spends and remembers.
--
-- It only adds. The new columns are no part of a run's digest while it does not use them.

-- Up to which message a waiting run has looked; a later one wakes it.
ALTER TABLE holdfast.runs ADD COLUMN heard bigint;
-- The run that started this one, and the top of the family.
ALTER TABLE holdfast.runs ADD COLUMN parent text COLLATE "C";
ALTER TABLE holdfast.runs ADD COLUMN root text COLLATE "C";
-- Of a fork: where it came from, and from which chunk on its values are its own.
ALTER TABLE holdfast.runs ADD COLUMN origin text;
-- When its journal was removed; the row stays, so that the id is not given again.
ALTER TABLE holdfast.runs ADD COLUMN deleted_us bigint;

CREATE INDEX runs_by_parent ON holdfast.runs (namespace, parent, run_no) WHERE parent IS NOT NULL;

-- The forks of a run, by the text that says where they came from.
CREATE INDEX runs_by_origin ON holdfast.runs (namespace, origin COLLATE "C")
  WHERE origin IS NOT NULL;

-- What workers look through. Runs that wait for a person or a timer may be many, and are not among
-- those that can be taken at any time: one whose time has come is found by its time, and one that
-- got a message by the message.
DROP INDEX holdfast.runs_ready;
CREATE INDEX runs_ready ON holdfast.runs
  (namespace, (coalesce(queue, 'default')), (-coalesce(priority, 0)), run_no)
  WHERE owner IS NULL AND status IN ('queued', 'running') AND wake_us IS NULL;
CREATE INDEX runs_timed ON holdfast.runs (namespace, (coalesce(queue, 'default')), wake_us)
  WHERE owner IS NULL AND status IN ('queued', 'running', 'waiting') AND wake_us IS NOT NULL;
DROP INDEX holdfast.inbox_new;
CREATE INDEX inbox_untaken ON holdfast.inbox (run_no, number) WHERE taken_seq IS NULL;

-- What runs ask people, while it is open.
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

-- What families of runs may spend, and have spent.
CREATE TABLE holdfast.pots (
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

CREATE INDEX pots_by_hash ON holdfast.pots (root_hash);

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

-- A run whose journal was removed is nowhere.
CREATE OR REPLACE VIEW holdfast.state AS
SELECT r.run_id, r.status, r.current_step,
  (SELECT e.output FROM holdfast.entries AS e WHERE e.run_no = r.run_no AND e.kind = 'state_saved'
   ORDER BY e.seq DESC LIMIT 1) AS last_snapshot,
  to_timestamp(r.updated_us / 1000000.0) AS updated_at, r.namespace
FROM holdfast.runs AS r
WHERE r.deleted_us IS NULL
ORDER BY r.run_no;
