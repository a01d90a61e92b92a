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

-- name: question_columns
run_no, name, number, kind, asked_of, CAST(body AS BLOB), asked_us, until_us, digest

-- name: account_columns
namespace, root, opened_us, usd_nanos, tokens, steps, wall_us, spent_usd_nanos, spent_tokens,
spent_steps, digest

-- name: measure_columns
CAST(namespace AS BLOB), at_us, CAST(process AS BLOB), CAST(flow AS BLOB), CAST(body AS BLOB), digest

-- name: memo_columns
namespace, space, key, CAST(value AS BLOB), expires_us, version, updated_us, run_id, digest

-- name: store_columns
store_id, incarnation, commits, head, clock_us, last_run_no, last_owner, accepted_through, is_copy,
digest

-- name: owner_columns
owner, pid, started, boot_id, pid_namespace, host, lock_inode, registered_us, digest


-- Transactions ------------------------------------------------------------------------------------

-- name: begin
BEGIN IMMEDIATE

-- name: begin_reading
BEGIN DEFERRED

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

-- name: put_question
INSERT INTO questions (run_no, name, number, kind, asked_of, body, asked_us, until_us, digest)
VALUES (?, ?, ?, ?, ?, CAST(? AS TEXT), ?, ?, ?)
ON CONFLICT (run_no, name) DO UPDATE SET number = excluded.number, kind = excluded.kind,
  asked_of = excluded.asked_of, body = excluded.body, asked_us = excluded.asked_us,
  until_us = excluded.until_us, digest = excluded.digest

-- name: close_question
DELETE FROM questions WHERE run_no = ? AND name = ?

-- name: close_questions
DELETE FROM questions WHERE run_no = ?

-- name: put_account
INSERT INTO accounts ({account_columns}, root_hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, root) DO UPDATE SET opened_us = excluded.opened_us,
  usd_nanos = excluded.usd_nanos, tokens = excluded.tokens, steps = excluded.steps,
  wall_us = excluded.wall_us, spent_usd_nanos = excluded.spent_usd_nanos,
  spent_tokens = excluded.spent_tokens, spent_steps = excluded.spent_steps,
  digest = excluded.digest

-- name: add_account
INSERT INTO accounts ({account_columns}, root_hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, root) DO NOTHING

-- name: put_memo
INSERT INTO memos (namespace, space, key, value, expires_us, version, updated_us, run_id, digest,
  key_hash)
VALUES (?, ?, ?, CAST(? AS TEXT), ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, space, key) DO UPDATE SET value = excluded.value,
  expires_us = excluded.expires_us, version = excluded.version, updated_us = excluded.updated_us,
  run_id = excluded.run_id, digest = excluded.digest

-- name: put_measure
INSERT INTO measures (namespace, at_us, process, flow, body, digest)
VALUES (?, ?, ?, ?, CAST(? AS TEXT), ?)
ON CONFLICT (namespace, at_us, process, flow) DO UPDATE SET body = excluded.body,
  digest = excluded.digest

-- name: drop_measures
DELETE FROM measures WHERE id IN (
  SELECT id FROM measures WHERE namespace = ? AND at_us < ? ORDER BY at_us LIMIT ?)

-- name: store_advanced
UPDATE store SET commits = ?, head = ?, clock_us = ?, last_run_no = ?, last_owner = ?, digest = ?
WHERE id = 1 AND commits = ? AND incarnation = ?


-- Other writes ------------------------------------------------------------------------------------

-- name: add_store
INSERT INTO store (id, {store_columns}) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: put_store
UPDATE store SET store_id = ?, incarnation = ?, commits = ?, head = ?, clock_us = ?,
  last_run_no = ?, last_owner = ?, accepted_through = ?, is_copy = ?, digest = ?
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


-- Removing a run: everything but its row ----------------------------------------------------------

-- name: remove_entries
DELETE FROM journal WHERE id BETWEEN ?1 << 32 AND ?1 << 32 | 4294967295

-- name: remove_chunks
DELETE FROM chunks WHERE id BETWEEN ?1 << 32 AND ?1 << 32 | 4294967295

-- name: remove_messages
DELETE FROM inbox WHERE id BETWEEN ?1 << 32 AND ?1 << 32 | 4294967295

-- name: remove_keys
DELETE FROM keys WHERE run_no = ?

-- name: remove_memo
DELETE FROM memos WHERE namespace = ? AND space = ? AND key = ?

-- name: remove_account
DELETE FROM accounts WHERE namespace = ? AND root = ?


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

-- A row that only one of two ways finds is damage only if both saw one state: one statement.
-- name: run_both_ways
SELECT true, * FROM ({run_by_id}) UNION ALL SELECT false, * FROM ({run_by_hash})

-- name: run_by_number
SELECT {run_columns} FROM runs WHERE run_no = ?

-- name: runs_by_numbers
SELECT {run_columns} FROM runs NOT INDEXED WHERE run_no IN (SELECT value FROM json_each(?))

-- name: is_listed
namespace = :namespace AND deleted_us IS NULL
  AND (:before IS NULL OR run_no < :before)
  AND (:status IS NULL OR status IN (SELECT value FROM json_each(:status)))
  AND (:flow IS NULL OR flow = :flow)
  AND (:version IS NULL OR version = :version)
  AND (:prefix IS NULL OR (run_id >= :prefix AND run_id < :prefix_end))
  AND (:part IS NULL OR instr(run_id, :part) > 0)
  AND (:updated_before_us IS NULL OR updated_us < :updated_before_us)
  AND (:updated_after_us IS NULL OR updated_us >= :updated_after_us)
  AND (:queue IS NULL OR coalesce(queue, 'default') = :queue)
  AND (:held_reason IS NULL OR held_reason = :held_reason)
  AND (:parent IS NULL OR parent = :parent)
  AND (NOT :forks OR origin IS NOT NULL)
  AND (:tag_part IS NULL OR instr(tags, :tag_part) > 0)
  AND (:tag IS NULL OR EXISTS (
    SELECT 1 FROM json_each(CASE WHEN json_valid(tags) THEN tags ELSE '{}' END) AS tag
    WHERE tag.key = :tag AND tag.type = 'text' AND tag.value = :tag_value))

-- name: list_runs
SELECT {run_columns} FROM runs NOT INDEXED WHERE {is_listed} ORDER BY run_no DESC LIMIT :limit

-- name: list_children
SELECT {run_columns} FROM runs NOT INDEXED
WHERE run_no IN (SELECT run_no FROM runs INDEXED BY runs_by_parent
    WHERE namespace = :namespace AND parent = :parent)
  AND {is_listed}
ORDER BY run_no DESC LIMIT :limit

-- name: fork_of
SELECT run_id FROM runs
WHERE namespace = ? AND origin IS NOT NULL AND origin >= ? AND origin < ? AND deleted_us IS NULL
LIMIT 1

-- name: list_children_hidden
SELECT run_no FROM ({list_runs}) EXCEPT SELECT run_no FROM ({list_children})

-- name: count_numbers
SELECT count(*) FROM runs NOT INDEXED WHERE run_no BETWEEN ? AND ?

-- name: half_removed
SELECT run_no FROM runs NOT INDEXED
WHERE run_no BETWEEN ? AND ? AND deleted_us IS NOT NULL
  AND EXISTS (SELECT 1 FROM journal
    WHERE id BETWEEN runs.run_no << 32 AND runs.run_no << 32 | 4294967295)
LIMIT 1

-- name: runs_waiting_on
SELECT {run_columns} FROM runs NOT INDEXED
WHERE run_no IN (SELECT run_no FROM runs INDEXED BY runs_waiting WHERE waiting_on = ?)
  AND namespace = ?
ORDER BY run_no

-- name: runs_waiting_on_scan
SELECT {run_columns} FROM runs NOT INDEXED WHERE waiting_on = ? AND namespace = ? ORDER BY run_no

-- name: held_on
WITH RECURSIVE found (token) AS (
  SELECT (SELECT min(waiting_on) FROM runs INDEXED BY runs_held_on
    WHERE namespace = :namespace AND status = 'held' AND waiting_on > :after)
  UNION ALL
  SELECT (SELECT min(waiting_on) FROM runs INDEXED BY runs_held_on
    WHERE namespace = :namespace AND status = 'held' AND waiting_on > found.token)
  FROM found WHERE found.token < :end)
SELECT token FROM found WHERE token < :end LIMIT :limit

-- name: held_runs
SELECT {run_columns} FROM runs NOT INDEXED WHERE run_no IN (
  SELECT run_no FROM runs INDEXED BY runs_held_on
  WHERE namespace = :namespace AND status = 'held' AND waiting_on = :token AND run_no > :after
  ORDER BY run_no LIMIT :limit)
ORDER BY run_no

-- name: owners_at_work
WITH RECURSIVE found (owner) AS (
  SELECT (SELECT min(owner) FROM runs INDEXED BY runs_owned
    WHERE owner IS NOT NULL AND status IN ('queued', 'running', 'waiting'))
  UNION ALL
  SELECT (SELECT min(owner) FROM runs INDEXED BY runs_owned
    WHERE owner > found.owner AND status IN ('queued', 'running', 'waiting'))
  FROM found WHERE found.owner IS NOT NULL)
SELECT found.owner, coalesce(until_us, 0) FROM found LEFT JOIN pulses ON pulses.owner = found.owner
WHERE found.owner IS NOT NULL

-- Due runs. An unowned run is due if it waits for nothing, if its time has come, or if it
-- waits and got a message that it has not heard. Each way has its own index; `spoken_to` joins the
-- messages that are not taken, and reads only runs that have one.

-- name: is_asleep
owner IS NULL AND status IN ('queued', 'running', 'waiting')
  AND (status = 'waiting' OR wake_us IS NOT NULL)

-- name: spoken_to
(SELECT run_no AS to_no, id & 4294967295 AS number FROM inbox INDEXED BY inbox_untaken
  WHERE taken_seq IS NULL) CROSS JOIN runs NOT INDEXED
  ON run_no = to_no AND owner IS NULL AND status = 'waiting' AND number > coalesce(heard, 0)

-- name: sleeping_queues
WITH RECURSIVE found (name) AS (
  SELECT (SELECT min(coalesce(queue, 'default')) FROM runs INDEXED BY runs_asleep
    WHERE namespace = :namespace AND {is_asleep})
  UNION ALL
  SELECT (SELECT min(coalesce(queue, 'default')) FROM runs INDEXED BY runs_asleep
    WHERE namespace = :namespace AND coalesce(queue, 'default') > found.name AND {is_asleep})
  FROM found WHERE found.name IS NOT NULL)
SELECT name FROM found WHERE name IS NOT NULL

-- name: woken_runs
SELECT run_no FROM ({sleeping_queues}) CROSS JOIN runs INDEXED BY runs_asleep
  ON namespace = :namespace AND coalesce(queue, 'default') = name AND wake_us <= :at_us
WHERE {is_asleep}
UNION
SELECT run_no FROM {spoken_to} WHERE namespace = :namespace

-- name: is_left
owner IN (SELECT value FROM json_each(:dead))
  OR (owner IN (SELECT value FROM json_each(:late)) AND lease_until_us <= :at_us)

-- name: claimable_runs
SELECT {run_columns} FROM runs NOT INDEXED
WHERE run_no IN (SELECT run_no FROM (
    SELECT * FROM (SELECT run_no FROM runs INDEXED BY runs_ready
      WHERE namespace = :namespace
        AND owner IS NULL AND status IN ('queued', 'running') AND wake_us IS NULL
      ORDER BY run_no LIMIT :limit)
    UNION
    {woken_runs}
    UNION
    SELECT run_no FROM runs INDEXED BY runs_owned
    WHERE owner IS NOT NULL AND status IN ('queued', 'running', 'waiting')
      AND namespace = :namespace AND ({is_left}))
  ORDER BY run_no LIMIT :limit)
ORDER BY run_no

-- name: claimable_runs_scan
SELECT {run_columns} FROM runs NOT INDEXED
WHERE status IN ('queued', 'running', 'waiting') AND namespace = :namespace
  AND CASE WHEN owner IS NOT NULL THEN {is_left}
    ELSE coalesce(wake_us <= :at_us, status <> 'waiting')
      OR (status = 'waiting' AND EXISTS (
        SELECT 1 FROM inbox NOT INDEXED
        WHERE inbox.id > (runs.run_no << 32 | coalesce(runs.heard, 0))
          AND inbox.id <= (runs.run_no << 32 | 4294967295) AND taken_seq IS NULL))
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

-- name: key_both_ways
SELECT true, * FROM ({key_by_name}) UNION ALL SELECT false, * FROM ({key_by_hash})

-- The messages by their numbers, and what an index shows of them, in one statement: one state.
-- name: messages_both_ways
SELECT true, {message_columns} FROM inbox NOT INDEXED WHERE id BETWEEN ? AND ?
UNION ALL
SELECT false, NULL, run_no, message_id, NULL, NULL, NULL, NULL, NULL, NULL
FROM inbox INDEXED BY sqlite_autoindex_inbox_1 WHERE run_no = ?

-- name: messages_since
SELECT true, {message_columns} FROM inbox NOT INDEXED WHERE id > ? AND id <= ?
UNION ALL
SELECT false, id, run_no, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM inbox INDEXED BY inbox_untaken WHERE run_no = ? AND taken_seq IS NULL AND id > ?

-- name: newest_message
SELECT id FROM inbox WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT 1

-- name: message_by_id
SELECT {message_columns} FROM inbox NOT INDEXED WHERE id = (
  SELECT id FROM inbox INDEXED BY sqlite_autoindex_inbox_1 WHERE run_no = ? AND message_id = ?)

-- name: news
SELECT run_no, max(id) & 4294967295 FROM inbox INDEXED BY inbox_untaken
WHERE run_no IN (SELECT value FROM json_each(?)) AND taken_seq IS NULL GROUP BY run_no

-- name: open_questions
SELECT {question_columns} FROM questions NOT INDEXED
  JOIN (SELECT run_no AS of_no, run_id AS asked_by, namespace FROM runs) ON of_no = run_no
WHERE namespace = :namespace ORDER BY asked_us, asked_by, name LIMIT :limit

-- name: hidden_questions
SELECT * FROM (
  SELECT id, run_no, name FROM questions NOT INDEXED
  EXCEPT SELECT id, run_no, name FROM questions INDEXED BY sqlite_autoindex_questions_1)
UNION ALL
SELECT * FROM (
  SELECT id, run_no, name FROM questions INDEXED BY sqlite_autoindex_questions_1
  EXCEPT SELECT id, run_no, name FROM questions NOT INDEXED)
LIMIT 1

-- name: questions_of_run
SELECT {question_columns} FROM questions NOT INDEXED
WHERE id IN (SELECT id FROM questions INDEXED BY sqlite_autoindex_questions_1 WHERE run_no = ?)
ORDER BY asked_us, name

-- name: account_by_name
SELECT {account_columns} FROM accounts NOT INDEXED
WHERE id = (SELECT id FROM accounts WHERE namespace = ? AND root = ?)

-- name: account_by_hash
SELECT {account_columns} FROM accounts INDEXED BY accounts_by_hash WHERE root_hash = ?

-- name: account_both_ways
SELECT true, * FROM ({account_by_name}) UNION ALL SELECT false, * FROM ({account_by_hash})

-- name: memo_by_name
SELECT {memo_columns} FROM memos NOT INDEXED
WHERE id = (SELECT id FROM memos WHERE namespace = ? AND space = ? AND key = ?)

-- name: memo_by_hash
SELECT {memo_columns} FROM memos INDEXED BY memos_by_hash WHERE key_hash = ?

-- name: memo_both_ways
SELECT true, * FROM ({memo_by_name}) UNION ALL SELECT false, * FROM ({memo_by_hash})

-- name: list_memos
SELECT {memo_columns} FROM memos NOT INDEXED
WHERE id IN (SELECT id FROM memos INDEXED BY sqlite_autoindex_memos_1
  WHERE namespace = :namespace AND space = :space AND key > :after AND key >= :prefix
    AND (:end IS NULL OR key < :end)
  ORDER BY key LIMIT :limit)
ORDER BY key

-- name: spaces
SELECT DISTINCT space FROM memos NOT INDEXED WHERE namespace = ? ORDER BY space

-- name: hidden_memos
SELECT * FROM (
  SELECT id, namespace, space, key FROM memos NOT INDEXED
  EXCEPT SELECT id, namespace, space, key FROM memos INDEXED BY sqlite_autoindex_memos_1)
UNION ALL
SELECT * FROM (
  SELECT id, namespace, space, key FROM memos INDEXED BY sqlite_autoindex_memos_1
  EXCEPT SELECT id, namespace, space, key FROM memos NOT INDEXED)
LIMIT 1

-- name: expired_memos
SELECT {memo_columns} FROM memos NOT INDEXED
WHERE namespace = :namespace AND expires_us <= :at_us AND value IS NOT NULL
ORDER BY expires_us, space, key LIMIT :limit

-- name: expired_memos_of_space
SELECT {memo_columns} FROM memos INDEXED BY sqlite_autoindex_memos_1
WHERE namespace = :namespace AND space = :space AND expires_us <= :at_us AND value IS NOT NULL
ORDER BY expires_us, key LIMIT :limit

-- name: stale_memos
SELECT {memo_columns} FROM memos NOT INDEXED
WHERE namespace = ? AND CASE WHEN value IS NULL THEN updated_us ELSE expires_us END < ? LIMIT ?

-- name: measures
SELECT {measure_columns} FROM measures WHERE namespace = ? AND at_us >= ? AND at_us < ?
ORDER BY at_us, process, flow LIMIT ?

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

-- name: ready_queues
WITH RECURSIVE found (name) AS (
  SELECT (SELECT min(coalesce(queue, 'default')) FROM runs INDEXED BY runs_ready
    WHERE namespace = :namespace
      AND owner IS NULL AND status IN ('queued', 'running') AND wake_us IS NULL)
  UNION ALL
  SELECT (SELECT min(coalesce(queue, 'default')) FROM runs INDEXED BY runs_ready
    WHERE namespace = :namespace AND coalesce(queue, 'default') > found.name
      AND owner IS NULL AND status IN ('queued', 'running') AND wake_us IS NULL)
  FROM found WHERE found.name IS NOT NULL)
SELECT name FROM found WHERE name IS NOT NULL
UNION
SELECT name FROM ({sleeping_queues})
WHERE EXISTS (SELECT 1 FROM runs INDEXED BY runs_asleep
  WHERE namespace = :namespace AND coalesce(queue, 'default') = name AND wake_us <= :at_us
    AND {is_asleep})
UNION
SELECT coalesce(queue, 'default') FROM {spoken_to} WHERE namespace = :namespace

-- name: may_pass
-coalesce(priority, 0) >= :rank AND (-coalesce(priority, 0) > :rank OR run_no > :after)
    AND (:begins OR epoch > 0)
    AND (:flows IS NULL OR flow || char(31) || version IN (SELECT value FROM json_each(:flows)))
    AND (limit_key IS NULL OR limit_key NOT IN (SELECT value FROM json_each(:full)))
    AND (limit_key IS NULL OR epoch > 0
      OR limit_key NOT IN (SELECT value FROM json_each(:spent)))
    AND (:claims = 0 OR claims >= :claims)

-- name: ready_runs
SELECT {run_columns} FROM runs NOT INDEXED WHERE run_no IN (
  SELECT run_no FROM (
    SELECT * FROM (
      SELECT -coalesce(priority, 0) AS rank, run_no FROM runs INDEXED BY runs_ready
      WHERE namespace = :namespace AND coalesce(queue, 'default') = :queue
        AND owner IS NULL AND status IN ('queued', 'running') AND wake_us IS NULL AND {may_pass}
      ORDER BY -coalesce(priority, 0), run_no LIMIT :limit)
    UNION
    SELECT * FROM (
      SELECT -coalesce(priority, 0), run_no FROM runs INDEXED BY runs_asleep
      WHERE namespace = :namespace AND coalesce(queue, 'default') = :queue
        AND wake_us <= :at_us AND {is_asleep} AND {may_pass}
      ORDER BY -coalesce(priority, 0), run_no LIMIT :limit)
    UNION
    SELECT -coalesce(priority, 0), run_no FROM {spoken_to}
    WHERE namespace = :namespace AND coalesce(queue, 'default') = :queue AND {may_pass})
  ORDER BY rank, run_no LIMIT :limit)

-- Runs that the tables have and the indexes of workers do not show, or show in another place.

-- name: hidden_run
SELECT run_no FROM (
  SELECT run_no, namespace, coalesce(queue, 'default'), wake_us FROM runs NOT INDEXED
  WHERE owner IS NULL AND status IN ('queued', 'running', 'waiting')
  EXCEPT
  SELECT * FROM (
    SELECT run_no, namespace, coalesce(queue, 'default'), NULL FROM runs INDEXED BY runs_ready
    WHERE owner IS NULL AND status IN ('queued', 'running') AND wake_us IS NULL
    UNION ALL
    SELECT run_no, namespace, coalesce(queue, 'default'), wake_us FROM runs INDEXED BY runs_asleep
    WHERE {is_asleep}))
UNION ALL
SELECT to_no FROM (
  SELECT runs.run_no AS to_no, inbox.id FROM runs NOT INDEXED CROSS JOIN inbox NOT INDEXED
    ON inbox.id BETWEEN runs.run_no << 32 AND runs.run_no << 32 | 4294967295
  WHERE status IN ('queued', 'running', 'waiting') AND taken_seq IS NULL
  EXCEPT
  SELECT run_no, id FROM inbox INDEXED BY inbox_untaken WHERE taken_seq IS NULL)
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
namespace, queue, concurrency, concurrency_per_key, rate, rate_per_key, period_us, paused, digest

-- name: put_limits
INSERT INTO queues ({limit_columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace, queue) DO UPDATE SET concurrency = excluded.concurrency,
  concurrency_per_key = excluded.concurrency_per_key, rate = excluded.rate, rate_per_key = excluded.rate_per_key,
  period_us = excluded.period_us, paused = excluded.paused, digest = excluded.digest

-- name: queue_counts
SELECT name, sum(ready), sum(delayed), sum(running), sum(failed), sum(held), sum(quarantined),
  min(oldest_us), sum(abandoned)
FROM (
  SELECT coalesce(queue, 'default') AS name, 0 AS ready, 0 AS delayed, count(*) AS running,
    0 AS failed, 0 AS held, 0 AS quarantined, NULL AS oldest_us, 0 AS abandoned
  FROM runs INDEXED BY runs_owned
  WHERE owner IS NOT NULL AND status IN ('queued', 'running', 'waiting') AND namespace = :namespace
    AND NOT ({is_left})
  GROUP BY coalesce(queue, 'default')
  UNION ALL
  SELECT coalesce(queue, 'default'), 0, 0, 0, 0, 0, 0, min(max(updated_us, coalesce(
      (SELECT until_us - :lease_us FROM pulses WHERE pulses.owner = runs.owner), 0))), count(*)
  FROM runs INDEXED BY runs_owned
  WHERE owner IS NOT NULL AND status IN ('queued', 'running', 'waiting') AND namespace = :namespace
    AND ({is_left})
  GROUP BY coalesce(queue, 'default')
  UNION ALL
  SELECT coalesce(queue, 'default'), count(*), 0, 0, 0, 0, 0, min(updated_us), 0
  FROM runs INDEXED BY runs_ready
  WHERE namespace = :namespace
    AND owner IS NULL AND status IN ('queued', 'running') AND wake_us IS NULL
  GROUP BY coalesce(queue, 'default')
  UNION ALL
  SELECT coalesce(queue, 'default'), 0, count(*), 0, 0, 0, 0, NULL, 0
  FROM runs INDEXED BY runs_asleep
  WHERE namespace = :namespace AND {is_asleep}
  GROUP BY coalesce(queue, 'default')
  UNION ALL
  SELECT coalesce(queue, 'default'), count(*), -count(*), 0, 0, 0, 0, min(updated_us), 0
  FROM runs NOT INDEXED
  WHERE run_no IN ({woken_runs})
  GROUP BY coalesce(queue, 'default')
  UNION ALL
  SELECT coalesce(queue, 'default'), 0, 0, 0, sum(status = 'failed'), sum(status = 'held'),
    sum(status = 'held' AND coalesce(held_reason, '') = 'quarantined'), NULL, 0
  FROM runs INDEXED BY runs_stopped
  WHERE namespace = :namespace AND status IN ('failed', 'held') AND deleted_us IS NULL
  GROUP BY coalesce(queue, 'default'))
GROUP BY name


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

-- name: schedule
SELECT {schedule_columns} FROM schedules WHERE namespace = ? AND name = ?

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

-- name: not_synchronous
PRAGMA synchronous = OFF

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

-- name: all_questions
SELECT {question_columns} FROM questions NOT INDEXED ORDER BY id

-- name: all_accounts
SELECT {account_columns} FROM accounts NOT INDEXED ORDER BY id

-- name: all_memos
SELECT {memo_columns} FROM memos NOT INDEXED ORDER BY id

-- name: all_measures
SELECT {measure_columns} FROM measures NOT INDEXED ORDER BY id

-- name: all_chunks
SELECT id, digest, CAST(body AS BLOB) FROM chunks ORDER BY id

-- name: count_runs
SELECT count(*), max(run_no) FROM runs NOT INDEXED

-- name: questions_of_nobody
SELECT run_id, name FROM questions JOIN runs USING (run_no)
WHERE status IN ('completed', 'cancelled', 'rolled_back') LIMIT 100

-- name: rows_without_run
WITH there (run_no) AS (SELECT run_no FROM runs NOT INDEXED WHERE deleted_us IS NULL)
SELECT DISTINCT 'journal', id >> 32 FROM journal WHERE id >> 32 NOT IN (SELECT run_no FROM there)
UNION ALL
SELECT DISTINCT 'chunks', id >> 32 FROM chunks WHERE id >> 32 NOT IN (SELECT run_no FROM there)
UNION ALL
SELECT DISTINCT 'inbox', id >> 32 FROM inbox WHERE id >> 32 NOT IN (SELECT run_no FROM there)
UNION ALL
SELECT DISTINCT 'keys', run_no FROM keys WHERE run_no NOT IN (SELECT run_no FROM there)
UNION ALL
SELECT DISTINCT 'questions', run_no FROM questions WHERE run_no NOT IN (SELECT run_no FROM there)
LIMIT 100
