-- Every statement of the SQLite store, by name. A block without a verb is a list of columns that
-- others take in with {name}.

-- name: run_columns
run_no, namespace, run_id, flow, version, status, held_reason, generation, epoch, owner,
lease_until_us, last_seq, head, next_chunk, input_digest, current_step, steps, attempts, degraded,
claims, skips, waiting_on, wake_us, usage, tags, created_us, updated_us, queue, priority, limit_key,
digest

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

-- name: truncate_wal
PRAGMA wal_checkpoint(TRUNCATE)


-- The append of an owner --------------------------------------------------------------------------
-- The guard is the fence, the row lock and the sequence number at once: zero rows is a lost lease.
-- A step of a running run touches no index; only `run_moved` sets what indexes are made of.

-- name: run_advanced
UPDATE runs SET held_reason = ?, generation = ?, epoch = ?, owner = ?, lease_until_us = ?,
  last_seq = ?, head = ?, next_chunk = ?, current_step = ?, steps = ?, attempts = ?, degraded = ?,
  claims = ?, skips = ?, usage = ?, updated_us = ?, digest = ?
WHERE run_no = ? AND epoch = ? AND last_seq = ? AND digest = ?

-- name: run_moved
UPDATE runs SET flow = ?, version = ?, status = ?, held_reason = ?, generation = ?, epoch = ?,
  owner = ?, lease_until_us = ?, last_seq = ?, head = ?, next_chunk = ?, input_digest = ?,
  current_step = ?, steps = ?, attempts = ?, degraded = ?, claims = ?, skips = ?, waiting_on = ?,
  wake_us = ?, usage = ?, tags = ?, updated_us = ?, digest = ?
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
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

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

-- name: owners_of_open_runs
SELECT DISTINCT owner FROM runs INDEXED BY runs_open
WHERE status IN ('queued', 'running', 'waiting') AND owner IS NOT NULL

-- name: claimable_runs
SELECT {run_columns} FROM runs NOT INDEXED
WHERE run_no IN (
    SELECT run_no FROM runs INDEXED BY runs_open
    WHERE status IN ('queued', 'running', 'waiting')
      AND (owner IS NOT NULL OR status = 'waiting' OR wake_us IS NULL OR wake_us <= :at_us))
  AND namespace = :namespace
  AND CASE WHEN owner IS NOT NULL
    THEN lease_until_us <= :at_us OR owner IN (SELECT value FROM json_each(:dead))
    ELSE coalesce(wake_us <= :at_us, status <> 'waiting')
      OR (status = 'waiting' AND EXISTS (
        SELECT 1 FROM inbox WHERE inbox.run_no = runs.run_no AND taken_seq IS NULL))
    END
ORDER BY run_no LIMIT :limit

-- name: claimable_runs_scan
SELECT {run_columns} FROM runs NOT INDEXED
WHERE status IN ('queued', 'running', 'waiting') AND namespace = :namespace
  AND CASE WHEN owner IS NOT NULL
    THEN lease_until_us <= :at_us OR owner IN (SELECT value FROM json_each(:dead))
    ELSE coalesce(wake_us <= :at_us, status <> 'waiting')
      OR (status = 'waiting' AND EXISTS (
        SELECT 1 FROM inbox WHERE inbox.run_no = runs.run_no AND taken_seq IS NULL))
    END
ORDER BY run_no LIMIT :limit

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

-- name: all_incarnations
SELECT incarnation, at_us, actor, accepted, digest FROM incarnations ORDER BY incarnation

-- name: all_chunks
SELECT id, digest, CAST(body AS BLOB) FROM chunks ORDER BY id

-- name: chunk_ids
SELECT id FROM chunks WHERE id BETWEEN ? AND ?

-- name: count_runs
SELECT count(*), max(run_no) FROM runs NOT INDEXED

-- name: rows_without_run
SELECT 'journal', id FROM journal WHERE id >> 32 NOT IN (SELECT run_no FROM runs)
UNION ALL
SELECT 'chunks', id FROM chunks WHERE id >> 32 NOT IN (SELECT run_no FROM runs)
UNION ALL
SELECT 'inbox', id FROM inbox WHERE id >> 32 NOT IN (SELECT run_no FROM runs)
LIMIT 100
