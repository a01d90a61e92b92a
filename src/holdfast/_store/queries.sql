-- Every statement of the SQLite store, by name. A block without a verb is a list of columns that
-- others take in with {name}.

-- name: run_columns
run_no, namespace, run_id, flow, version, status, held_reason, generation, epoch, owner,
lease_until_us, last_seq, head, next_chunk, input_digest, current_step, steps, attempts, degraded,
claims, skips, waiting_on, wake_us, usage, tags, created_us, updated_us, queue, priority, limit_key,
heard, parent, root, origin, deleted_us, digest

-- name: entry_columns
id, kind, at_us, step, attempt, position, args_digest, started_us, CAST(body AS BLOB), digest

-- name: key_columns
namespace, effect, key, state, run_no, run_id, step, generation, args_digest, result_seq,
updated_us, digest

-- name: message_columns
id, run_no, message_id, kind, actor, at_us, CAST(body AS BLOB), taken_seq, digest

-- name: store_columns
store_id, incarnation, commits, head, clock_us, last_run_no, last_owner, adopted_through, is_copy,
digest

-- name: owner_columns
owner, pid, started, boot_id, pid_namespace, host, lock_inode, registered_us, digest


-- Transactions ------------------------------------------------------------------------------------

-- name: begin
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: checkpoint
PRAGMA wal_checkpoint(PASSIVE)

-- The append of an owner --------------------------------------------------------------------------
-- The guard is the fence, the row lock and the sequence number at once: zero rows is a lost lease.
-- A step of a running run touches no index; only `run_moved` sets what indexes are made of.

-- name: run_advanced
UPDATE runs SET held_reason = ?, generation = ?, lease_until_us = ?, last_seq = ?, head = ?,
  next_chunk = ?, current_step = ?, steps = ?, attempts = ?, degraded = ?, claims = ?, skips = ?,
  usage = ?, updated_us = ?, digest = ?
WHERE run_no = ? AND epoch = ? AND last_seq = ? AND digest = ?

-- name: run_moved
UPDATE runs SET flow = ?, version = ?, status = ?, held_reason = ?, generation = ?, epoch = ?,
  owner = ?, lease_until_us = ?, last_seq = ?, head = ?, next_chunk = ?, input_digest = ?,
  current_step = ?, steps = ?, attempts = ?, degraded = ?, claims = ?, skips = ?, waiting_on = ?,
  wake_us = ?, usage = ?, tags = ?, updated_us = ?, heard = ?, deleted_us = ?, digest = ?
WHERE run_no = ? AND epoch = ? AND last_seq = ? AND digest = ?

-- name: run_stands
SELECT 1 FROM runs WHERE run_no = ? AND epoch = ? AND last_seq = ? AND digest = ?

-- name: add_entry
INSERT INTO journal (id, kind, step, attempt, position, at_us, started_us, args_digest, digest,
  body)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, CAST(? AS TEXT))

-- name: add_chunk
INSERT INTO chunks (id, digest, body) VALUES (?, ?, CAST(? AS TEXT))

-- name: put_key
INSERT INTO keys (namespace, effect, key, state, run_no, run_id, step, generation, args_digest,
  result_seq, updated_us, digest, key_hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, effect, key) DO UPDATE SET state = excluded.state,
  run_no = excluded.run_no, run_id = excluded.run_id, step = excluded.step,
  generation = excluded.generation, args_digest = excluded.args_digest,
  result_seq = excluded.result_seq, updated_us = excluded.updated_us, digest = excluded.digest

-- name: take_message
UPDATE inbox SET taken_seq = ?, digest = ? WHERE id = ? AND taken_seq IS NULL

-- name: store_advanced
UPDATE store SET commits = ?, head = ?, clock_us = ?, last_run_no = ?, last_owner = ?, digest = ?
WHERE id = 1 AND commits = ? AND incarnation = ?


-- Other writes ------------------------------------------------------------------------------------

-- name: add_store
INSERT INTO store (id, {store_columns}) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_store
UPDATE store SET store_id = ?, incarnation = ?, commits = ?, head = ?, clock_us = ?,
  last_run_no = ?, last_owner = ?, adopted_through = ?, is_copy = ?, digest = ?
WHERE id = 1

-- name: add_incarnation
INSERT INTO incarnations (incarnation, at_us, actor, accepted, digest) VALUES (?, ?, ?, ?, ?)

-- name: add_run
INSERT INTO runs ({run_columns}, id_hash)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  ?, ?, ?, ?, ?)

-- name: add_owner
INSERT INTO owners ({owner_columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: add_message
INSERT INTO inbox (id, run_no, message_id, kind, actor, at_us, body, taken_seq, digest)
VALUES (?, ?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?)


-- Where an index finds the run, its columns are read from the table: the digest covers those, and
-- what SQLite would take from the index may differ from them when one of the two is damaged.

-- Reads -------------------------------------------------------------------------------------------

-- name: store_row
SELECT {store_columns} FROM store WHERE id = 1

-- name: run_by_id
SELECT {run_columns} FROM runs NOT INDEXED
WHERE run_no = (SELECT run_no FROM runs WHERE namespace = ? AND run_id = ?)

-- name: run_by_hash
SELECT {run_columns} FROM runs INDEXED BY runs_by_hash WHERE id_hash = ?

-- name: run_by_number
SELECT {run_columns} FROM runs WHERE run_no = ?

-- name: list_runs
SELECT {run_columns} FROM runs NOT INDEXED
WHERE namespace = :namespace
  AND (:before IS NULL OR run_no < :before)
  AND (:status IS NULL OR status IN (SELECT value FROM json_each(:status)))
  AND (:flow IS NULL OR flow = :flow)
  AND (:prefix IS NULL OR (run_id >= :prefix AND run_id < :prefix_end))
  AND (:updated_before_us IS NULL OR updated_us < :updated_before_us)
  AND (:queue IS NULL OR coalesce(queue, 'default') = :queue)
  AND (:held_reason IS NULL OR held_reason = :held_reason)
  AND (:tag IS NULL OR EXISTS (
    SELECT 1 FROM json_each(CASE WHEN json_valid(tags) THEN tags ELSE '{}' END) AS tag
    WHERE tag.key = :tag AND tag.type = 'text' AND tag.value = :tag_value))
ORDER BY run_no DESC LIMIT :limit

-- name: count_numbers
SELECT count(*) FROM runs NOT INDEXED WHERE run_no BETWEEN ? AND ?

-- name: runs_waiting_on
SELECT {run_columns} FROM runs NOT INDEXED
WHERE run_no IN (SELECT run_no FROM runs INDEXED BY runs_waiting WHERE waiting_on = ?)
  AND namespace = ?
ORDER BY run_no

-- name: runs_waiting_on_scan
SELECT {run_columns} FROM runs NOT INDEXED WHERE waiting_on = ? AND namespace = ? ORDER BY run_no

-- name: owners_at_work
WITH RECURSIVE found (owner) AS (
  SELECT (SELECT min(owner) FROM runs INDEXED BY runs_owned
    WHERE owner IS NOT NULL AND status IN ('queued', 'running', 'waiting'))
  UNION ALL
  SELECT (SELECT min(owner) FROM runs INDEXED BY runs_owned
    WHERE owner > found.owner AND status IN ('queued', 'running', 'waiting'))
  FROM found WHERE found.owner IS NOT NULL)
SELECT owner FROM found WHERE owner IS NOT NULL

-- name: claimable_runs
SELECT {run_columns} FROM runs NOT INDEXED
WHERE run_no IN (
    SELECT run_no FROM runs INDEXED BY runs_open
    WHERE status IN ('queued', 'running', 'waiting')
      AND (owner IS NOT NULL OR status = 'waiting' OR wake_us IS NULL OR wake_us <= :at_us))
  AND namespace = :namespace
  AND CASE WHEN owner IS NOT NULL
    THEN owner IN (SELECT value FROM json_each(:dead)) OR (lease_until_us <= :at_us
      AND NOT EXISTS (SELECT 1 FROM pulses WHERE pulses.owner = runs.owner AND until_us > :at_us))
    ELSE coalesce(wake_us <= :at_us, status <> 'waiting')
      OR (status = 'waiting' AND EXISTS (
        SELECT 1 FROM inbox WHERE inbox.run_no = runs.run_no AND taken_seq IS NULL))
    END
ORDER BY run_no LIMIT :limit

-- name: claimable_runs_scan
SELECT {run_columns} FROM runs NOT INDEXED
WHERE status IN ('queued', 'running', 'waiting') AND namespace = :namespace
  AND CASE WHEN owner IS NOT NULL
    THEN owner IN (SELECT value FROM json_each(:dead)) OR (lease_until_us <= :at_us
      AND NOT EXISTS (SELECT 1 FROM pulses WHERE pulses.owner = runs.owner AND until_us > :at_us))
    ELSE coalesce(wake_us <= :at_us, status <> 'waiting')
      OR (status = 'waiting' AND EXISTS (
        SELECT 1 FROM inbox WHERE inbox.run_no = runs.run_no AND taken_seq IS NULL))
    END
ORDER BY run_no LIMIT :limit

-- name: claimable_runs_hidden
SELECT run_no FROM ({claimable_runs_scan}) EXCEPT SELECT run_no FROM ({claimable_runs})

-- name: runs_waiting_on_hidden
SELECT run_no FROM ({runs_waiting_on_scan}) EXCEPT SELECT run_no FROM ({runs_waiting_on})

-- name: entries
SELECT {entry_columns} FROM journal WHERE id BETWEEN ? AND ? ORDER BY id

-- name: entry_before
SELECT id, digest FROM journal WHERE id < ? ORDER BY id DESC LIMIT 1

-- name: chunk_range
SELECT id, digest, CAST(body AS BLOB) FROM chunks WHERE id BETWEEN ? AND ? ORDER BY id

-- name: key_by_name
SELECT {key_columns} FROM keys NOT INDEXED
WHERE id = (SELECT id FROM keys WHERE namespace = ? AND effect = ? AND key = ?)

-- name: key_by_hash
SELECT {key_columns} FROM keys INDEXED BY keys_by_hash WHERE key_hash = ?

-- name: messages
SELECT {message_columns} FROM inbox WHERE id BETWEEN ? AND ? ORDER BY id

-- name: message_ids
SELECT message_id FROM inbox INDEXED BY sqlite_autoindex_inbox_1 WHERE run_no = ?

-- name: owner_row
SELECT {owner_columns} FROM owners WHERE owner = ?


-- Fleets ------------------------------------------------------------------------------------------
-- Each of these goes by an index, a step from one owner or queue to the next: what is not asked for
-- is not read, however much of it there is.

-- name: put_pulse
INSERT INTO pulses (owner, until_us, facts) VALUES (?, ?, ?)
ON CONFLICT (owner) DO UPDATE SET until_us = excluded.until_us, facts = excluded.facts

-- name: renew_pulse
UPDATE pulses SET until_us = max(until_us, ?) WHERE owner = ?

-- name: forget_pulses
DELETE FROM pulses WHERE until_us < ?

-- name: pulse_of
SELECT until_us FROM pulses WHERE owner = ?

-- name: pulses_after
SELECT owner, until_us, facts FROM pulses WHERE until_us > ? ORDER BY owner

-- name: epochs
SELECT run_no, epoch FROM runs WHERE run_no IN (SELECT value FROM json_each(?))

-- name: is_due
owner IS NULL AND CASE status
    WHEN 'waiting' THEN coalesce(wake_us <= :at_us, 0)
      OR run_no IN (SELECT run_no FROM inbox INDEXED BY inbox_untaken WHERE taken_seq IS NULL)
    ELSE coalesce(wake_us <= :at_us, 1) END

-- name: ready_queues
WITH RECURSIVE found (name) AS (
  SELECT (SELECT min(coalesce(queue, 'default')) FROM runs INDEXED BY runs_ready
    WHERE namespace = :namespace
      AND owner IS NULL AND status IN ('queued', 'running', 'waiting'))
  UNION ALL
  SELECT (SELECT min(coalesce(queue, 'default')) FROM runs INDEXED BY runs_ready
    WHERE namespace = :namespace AND coalesce(queue, 'default') > found.name
      AND owner IS NULL AND status IN ('queued', 'running', 'waiting'))
  FROM found WHERE found.name IS NOT NULL)
SELECT name FROM found WHERE name IS NOT NULL

-- name: ready_runs
SELECT {run_columns} FROM runs NOT INDEXED WHERE run_no IN (
  SELECT run_no FROM runs INDEXED BY runs_ready
  WHERE namespace = :namespace AND coalesce(queue, 'default') = :queue
    AND -coalesce(priority, 0) >= :rank AND (-coalesce(priority, 0) > :rank OR run_no > :after)
    AND status IN ('queued', 'running', 'waiting') AND {is_due} AND claims >= :claims
    AND (:begins OR epoch > 0)
    AND (:flows IS NULL OR flow || char(31) || version IN (SELECT value FROM json_each(:flows)))
    AND (limit_key IS NULL OR limit_key NOT IN (SELECT value FROM json_each(:full)))
    AND (limit_key IS NULL OR epoch > 0
      OR limit_key NOT IN (SELECT value FROM json_each(:spent)))
  ORDER BY -coalesce(priority, 0), run_no LIMIT :limit)

-- name: hidden_run
SELECT run_no FROM runs NOT INDEXED
WHERE owner IS NULL AND status IN ('queued', 'running', 'waiting')
EXCEPT
SELECT run_no FROM runs INDEXED BY runs_ready
WHERE owner IS NULL AND status IN ('queued', 'running', 'waiting')
LIMIT 1

-- name: queues_of_owner
SELECT DISTINCT coalesce(queue, 'default') FROM runs INDEXED BY runs_owned
WHERE owner = ? AND namespace = ? AND status IN ('queued', 'running', 'waiting')

-- name: runs_of_owner
SELECT {run_columns} FROM runs NOT INDEXED WHERE run_no IN (
  SELECT run_no FROM runs INDEXED BY runs_owned
  WHERE owner = :owner AND namespace = :namespace AND coalesce(queue, 'default') = :queue
    AND -coalesce(priority, 0) >= :rank AND (-coalesce(priority, 0) > :rank OR run_no > :after)
    AND status IN ('queued', 'running', 'waiting') AND claims >= :claims
    AND (:until_us IS NULL OR lease_until_us <= :until_us)
    AND run_no NOT IN (SELECT value FROM json_each(:working))
  ORDER BY -coalesce(priority, 0), run_no LIMIT :limit)

-- name: at_work
SELECT limit_key, count(*) FROM runs INDEXED BY runs_owned
WHERE owner IS NOT NULL AND namespace = ? AND coalesce(queue, 'default') = ?
  AND status IN ('queued', 'running', 'waiting')
GROUP BY limit_key

-- name: begun_since
SELECT limit_key, count(*) FROM begun WHERE namespace = ? AND queue = ? AND at_us > ?
GROUP BY limit_key

-- name: add_begun
INSERT INTO begun (namespace, queue, at_us, run_no, limit_key) VALUES (?, ?, ?, ?, ?)

-- name: forget_begun
DELETE FROM begun WHERE namespace = ? AND queue = ? AND at_us <= ?

-- name: limit_columns
namespace, queue, concurrency, per_key, rate, per_key_rate, period_us, paused, digest

-- name: put_limits
INSERT INTO queues ({limit_columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, queue) DO UPDATE SET concurrency = excluded.concurrency,
  per_key = excluded.per_key, rate = excluded.rate, per_key_rate = excluded.per_key_rate,
  period_us = excluded.period_us, paused = excluded.paused, digest = excluded.digest

-- name: open_counts
SELECT coalesce(queue, 'default'), sum(owner IS NOT NULL), sum({is_due}), count(*),
  min(CASE WHEN {is_due} THEN updated_us END)
FROM runs INDEXED BY runs_open
WHERE status IN ('queued', 'running', 'waiting') AND namespace = :namespace
GROUP BY coalesce(queue, 'default')

-- name: stopped_counts
SELECT coalesce(queue, 'default'), sum(status = 'failed'), sum(status = 'held'),
  sum(status = 'held' AND held_reason = 'quarantined')
FROM runs INDEXED BY runs_stopped WHERE namespace = ? AND status IN ('failed', 'held')
GROUP BY coalesce(queue, 'default')


-- name: schedule_columns
namespace, name, flow, spec, cursor_us, paused, digest

-- name: put_schedule
INSERT INTO schedules ({schedule_columns}) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, name) DO UPDATE SET flow = excluded.flow, spec = excluded.spec,
  cursor_us = excluded.cursor_us, paused = excluded.paused, digest = excluded.digest

-- name: keys_of_run
SELECT {key_columns} FROM keys NOT INDEXED
WHERE id IN (SELECT id FROM keys INDEXED BY keys_of_run WHERE run_no = ?) ORDER BY id

-- name: all_limits
SELECT {limit_columns} FROM queues ORDER BY namespace, queue

-- name: all_schedules
SELECT {schedule_columns} FROM schedules ORDER BY namespace, name


-- Settings of a connection ------------------------------------------------------------------------

-- name: page_size
PRAGMA page_size = {}

-- name: journal_mode
PRAGMA journal_mode = WAL

-- name: journal_mode_is
PRAGMA journal_mode

-- name: rollback_journal
PRAGMA journal_mode = DELETE

-- name: synchronous
PRAGMA synchronous = FULL

-- name: synchronous_is
PRAGMA synchronous

-- name: no_mmap
PRAGMA mmap_size = 0

-- name: foreign_keys
PRAGMA foreign_keys = ON

-- name: untrusted_schema
PRAGMA trusted_schema = OFF

-- name: query_only
PRAGMA query_only = ON

-- name: no_auto_checkpoint
PRAGMA wal_autocheckpoint = 0

-- name: wal_size_limit
PRAGMA journal_size_limit = 67108864


-- Schema ------------------------------------------------------------------------------------------

-- name: application_id
PRAGMA application_id

-- name: set_application_id
PRAGMA application_id = {}

-- name: schema_version
PRAGMA user_version

-- name: set_schema_version
PRAGMA user_version = {}

-- name: works_from
SELECT version, works_from, digest FROM schema

-- name: put_works_from
INSERT INTO schema (id, version, works_from, digest) VALUES (1, ?, ?, ?)
ON CONFLICT (id) DO UPDATE SET version = excluded.version, works_from = excluded.works_from,
  digest = excluded.digest

-- name: schema_objects
SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name


-- Verification ------------------------------------------------------------------------------------

-- name: integrity_check
PRAGMA integrity_check

-- name: all_runs
SELECT {run_columns} FROM runs NOT INDEXED ORDER BY run_no

-- name: all_keys
SELECT {key_columns} FROM keys NOT INDEXED ORDER BY id

-- name: all_messages
SELECT {message_columns} FROM inbox NOT INDEXED ORDER BY id

-- name: all_owners
SELECT {owner_columns} FROM owners ORDER BY owner

-- name: all_chunks
SELECT id, digest, CAST(body AS BLOB) FROM chunks ORDER BY id

-- name: count_runs
SELECT count(*), max(run_no) FROM runs NOT INDEXED

-- name: rows_without_run
SELECT 'journal', id FROM journal WHERE id >> 32 NOT IN (SELECT run_no FROM runs)
UNION ALL
SELECT 'chunks', id FROM chunks WHERE id >> 32 NOT IN (SELECT run_no FROM runs)
UNION ALL
SELECT 'inbox', id FROM inbox WHERE id >> 32 NOT IN (SELECT run_no FROM runs)
LIMIT 100
