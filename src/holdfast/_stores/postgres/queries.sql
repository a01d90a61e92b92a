-- Every statement of the PostgreSQL store, by name. A block without a verb is a list of columns or a
-- condition that others take in with {name}.

-- name: run_columns
run_no, namespace, run_id, flow, version, status, held_reason, generation, epoch, owner,
lease_until_us, last_seq, head, next_chunk, input_digest, current_step, steps, attempts, degraded,
claims, skips, waiting_on, wake_us, usage, tags, created_us, updated_us, queue, priority, limit_key,
heard, parent, root, origin, deleted_us, digest

-- name: entry_columns
run_no, seq, kind, at_us, step, attempt, position, args_digest, started_us,
convert_to(body, 'UTF8'), digest

-- name: key_columns
namespace, effect, key, state, run_no, run_id, step, generation, args_digest, result_seq,
updated_us, digest

-- name: message_columns
run_no, number, message_id, kind, actor, at_us, convert_to(body, 'UTF8'), taken_seq, digest

-- name: question_columns
q.run_no, q.name, q.number, q.kind, q.asked_of, convert_to(q.body, 'UTF8'), q.asked_us, q.until_us,
q.digest

-- name: account_columns
namespace, root, opened_us, usd_nanos, tokens, steps, wall_us, spent_usd_nanos, spent_tokens,
spent_steps, digest

-- name: measure_columns
namespace, at_us, process, flow, convert_to(body, 'UTF8'), digest

-- name: memo_columns
namespace, space, key, convert_to(value, 'UTF8'), expires_us, version, updated_us, run_id, digest

-- name: owner_columns
owner, pid, started, boot_id, pid_namespace, host, lock_inode, registered_us, digest

-- name: open_runs
status IN ('queued', 'running', 'waiting')

-- Says which runs that nobody owns have something to do; see claim_rules.is_due.
-- name: due
(coalesce(wake_us <= %(at_us)s, status <> 'waiting')
  OR (status = 'waiting' AND EXISTS (
    SELECT 1 FROM holdfast.inbox AS i
    WHERE i.run_no = runs.run_no AND i.taken_seq IS NULL AND i.number > coalesce(runs.heard, 0))))

-- The same in three parts that have an index each, so that runs that wait are not looked through.
-- name: due_always
owner IS NULL AND status IN ('queued', 'running') AND wake_us IS NULL

-- name: due_by_time
owner IS NULL AND {open_runs} AND wake_us IS NOT NULL AND wake_us <= %(at_us)s

-- name: due_by_message
owner IS NULL AND status = 'waiting' AND run_no IN (
  SELECT i.run_no FROM holdfast.inbox AS i JOIN holdfast.runs AS w ON w.run_no = i.run_no
  WHERE i.taken_seq IS NULL AND w.owner IS NULL AND w.status = 'waiting'
    AND i.number > coalesce(w.heard, 0))


-- Transactions ------------------------------------------------------------------------------------

-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE

-- name: begin_reading
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

-- Verifying a whole store needs one state of it until the end, so the time limits of the role do not
-- apply. Before version 17 there is no limit for a transaction.
-- name: wait_for_reader
SELECT set_config('idle_in_transaction_session_timeout', %s, true),
  set_config('statement_timeout', '0', true),
  CASE WHEN current_setting('transaction_timeout', true) IS NOT NULL
    THEN set_config('transaction_timeout', '0', true) END

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- A role or a database may have lowered it; `remote_apply` is stronger and stays. And should our
-- machine vanish without a word, the server must not keep our locks until its TCP notices (hours).
-- name: commit_for_good
SELECT CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
  THEN set_config('synchronous_commit', 'on', true) END,
  set_config('idle_in_transaction_session_timeout', %s::text, true)

-- name: discard_plans
DISCARD PLANS

-- name: transaction_id
SELECT pg_current_xact_id()::text

-- name: notify
SELECT set_config('synchronous_commit', 'off', true), pg_notify('holdfast', %s)

-- name: listen
LISTEN holdfast

-- name: now
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint


-- The append --------------------------------------------------------------------------------------
-- Any number of writes of any number of runs, in one round trip. The guard is the fence: the row
-- of a run changes only if it is as the writer saw it, and what belongs to the run is inserted only
-- if its row changed. Returns the runs that changed.

-- name: append
WITH wanted AS (
  SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::text[],
    $6::text[], $7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
    $13::bigint[], $14::bytea[], $15::bigint[], $16::bytea[], $17::text[], $18::bigint[],
    $19::bigint[], $20::bigint[], $21::bigint[], $22::text[], $23::text[], $24::bigint[],
    $25::text[], $26::text[], $27::bigint[], $28::bigint[], $29::bigint[], $30::bytea[])
  AS w (run_no, was_epoch, was_seq, was_digest, flow, version, status, held_reason, generation,
    epoch, owner, lease_until_us, last_seq, head, next_chunk, input_digest, current_step, steps,
    attempts, degraded, claims, skips, waiting_on, wake_us, usage, tags, updated_us, heard,
    deleted_us, digest)
), changed AS (
  UPDATE holdfast.runs AS r SET flow = w.flow, version = w.version, status = w.status,
    held_reason = w.held_reason, generation = w.generation, epoch = w.epoch, owner = w.owner,
    lease_until_us = w.lease_until_us, last_seq = w.last_seq, head = w.head,
    next_chunk = w.next_chunk, input_digest = w.input_digest, current_step = w.current_step,
    steps = w.steps, attempts = w.attempts, degraded = w.degraded, claims = w.claims,
    skips = w.skips, waiting_on = w.waiting_on, wake_us = w.wake_us, usage = w.usage,
    tags = w.tags, updated_us = w.updated_us, heard = w.heard, deleted_us = w.deleted_us,
    digest = w.digest
  FROM wanted AS w
  WHERE r.run_no = w.run_no AND r.epoch = w.was_epoch AND r.last_seq = w.was_seq
    AND r.digest = w.was_digest
  RETURNING r.run_no
), entered AS (
  INSERT INTO holdfast.journal (run_no, seq, kind, step, attempt, position, at_us, started_us,
    args_digest, digest, body)
  SELECT e.* FROM unnest($31::bigint[], $32::bigint[], $33::text[], $34::text[], $35::bigint[],
    $36::bigint[], $37::bigint[], $38::bigint[], $39::bytea[], $40::bytea[], $41::text[])
  AS e (run_no, seq, kind, step, attempt, position, at_us, started_us, args_digest, digest, body)
  WHERE e.run_no IN (SELECT run_no FROM changed)
), kept AS (
  INSERT INTO holdfast.chunks (run_no, number, digest, body)
  SELECT c.* FROM unnest($42::bigint[], $43::bigint[], $44::bytea[], $45::text[])
  AS c (run_no, number, digest, body)
  WHERE c.run_no IN (SELECT run_no FROM changed)
)
SELECT run_no,
  CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
    THEN set_config('synchronous_commit', 'on', true) END
FROM changed

-- The same for one entry of one run that goes on as it was: what most steps are, at half the cost.

-- name: append_one
WITH changed AS (
  UPDATE holdfast.runs SET lease_until_us = $5::bigint, last_seq = $6::bigint, head = $7::bytea,
    next_chunk = $8::bigint, current_step = $9::text, steps = $10::bigint,
    attempts = $11::bigint, usage = $12::text, updated_us = $13::bigint, digest = $14::bytea
  WHERE run_no = $1::bigint AND epoch = $2::bigint AND last_seq = $3::bigint
    AND digest = $4::bytea
  RETURNING run_no
), entered AS (
  INSERT INTO holdfast.journal (run_no, seq, kind, step, attempt, position, at_us, started_us,
    args_digest, digest, body)
  SELECT run_no, $15::bigint, $16::text, $17::text, $18::bigint, $19::bigint, $20::bigint,
    $21::bigint, $22::bytea, $23::bytea, $24::text
  FROM changed
)
SELECT run_no,
  CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
    THEN set_config('synchronous_commit', 'on', true) END
FROM changed

-- New runs, with their first entries and chunks. One that is there already is left alone, and so is
-- what would belong to it. Returns the runs that are new.

-- name: start
WITH wanted AS (
  SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[],
    $7::text[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[],
    $13::bytea[], $14::bigint[], $15::bytea[], $16::text[], $17::bigint[], $18::bigint[],
    $19::bigint[], $20::bigint[], $21::text[], $22::text[], $23::bigint[], $24::text[], $25::text[],
    $26::bigint[], $27::bigint[], $28::text[], $29::bigint[], $30::text[], $31::bigint[],
    $32::text[], $33::text[], $34::text[], $35::bigint[], $36::bytea[], $37::bigint[])
), made AS (
  INSERT INTO holdfast.runs ({run_columns}, id_hash)
  SELECT * FROM wanted
  ON CONFLICT (namespace, run_id) DO NOTHING
  RETURNING run_no
), entered AS (
  INSERT INTO holdfast.journal (run_no, seq, kind, step, attempt, position, at_us, started_us,
    args_digest, digest, body)
  SELECT e.* FROM unnest($38::bigint[], $39::bigint[], $40::text[], $41::text[], $42::bigint[],
    $43::bigint[], $44::bigint[], $45::bigint[], $46::bytea[], $47::bytea[], $48::text[])
  AS e (run_no, seq, kind, step, attempt, position, at_us, started_us, args_digest, digest, body)
  WHERE e.run_no IN (SELECT run_no FROM made)
), kept AS (
  INSERT INTO holdfast.chunks (run_no, number, digest, body)
  SELECT c.* FROM unnest($49::bigint[], $50::bigint[], $51::bytea[], $52::text[])
  AS c (run_no, number, digest, body)
  WHERE c.run_no IN (SELECT run_no FROM made)
)
SELECT run_no,
  CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
    THEN set_config('synchronous_commit', 'on', true) END
FROM made

-- name: run_numbers
SELECT nextval('holdfast.run_numbers') FROM generate_series(1, %s)

-- name: put_key
INSERT INTO holdfast.keys (namespace, effect, key, state, run_no, run_id, step, generation,
  args_digest, result_seq, updated_us, digest, key_hash)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (namespace, effect, key) DO UPDATE SET state = excluded.state,
  run_no = excluded.run_no, run_id = excluded.run_id, step = excluded.step,
  generation = excluded.generation, args_digest = excluded.args_digest,
  result_seq = excluded.result_seq, updated_us = excluded.updated_us, digest = excluded.digest

-- Two runs may want one key at the same moment, and then there is no row to lock yet. The same holds
-- for a memory; and who sends a message must not wait for the row of a run that sends one back.
-- name: lock_names
SELECT pg_advisory_xact_lock(n) FROM unnest(%s::bigint[]) AS n

-- name: take_message
UPDATE holdfast.inbox SET taken_seq = %s, digest = %s
WHERE run_no = %s AND number = %s AND taken_seq IS NULL


-- Other writes ------------------------------------------------------------------------------------

-- name: next_owner
SELECT nextval('holdfast.owner_numbers')

-- name: add_owner
INSERT INTO holdfast.owners ({owner_columns}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (owner) DO NOTHING

-- name: put_pulse
INSERT INTO holdfast.pulses (owner, until_us, facts) VALUES (%s, %s, %s)
ON CONFLICT (owner) DO UPDATE SET until_us = excluded.until_us, facts = excluded.facts
WHERE holdfast.pulses.until_us >= 0

-- name: end_pulse
INSERT INTO holdfast.pulses (owner, until_us, facts) SELECT unnest(%s::bigint[]), -1, ''
ON CONFLICT (owner) DO UPDATE SET until_us = -1

-- name: forget_pulses
DELETE FROM holdfast.pulses AS p
WHERE p.until_us < %s AND NOT EXISTS (
  SELECT 1 FROM holdfast.runs AS r WHERE r.owner = p.owner AND r.{open_runs})

-- name: lost_runs
SELECT w.run_no FROM unnest(%s::bigint[], %s::bigint[]) AS w (run_no, epoch)
LEFT JOIN holdfast.runs AS r ON r.run_no = w.run_no
WHERE r.epoch IS DISTINCT FROM w.epoch

-- name: add_message
INSERT INTO holdfast.inbox (run_no, number, message_id, kind, actor, at_us, body, taken_seq, digest)
VALUES (%s, %s, %s, %s, %s, %s, convert_from(%s, 'UTF8'), %s, %s)

-- A commit of an earlier try may not be on the replicas yet. A lock is a write: the commit of it
-- waits until they have both.

-- name: lock_message
SELECT 1 FROM holdfast.inbox WHERE run_no = %s AND message_id = %s FOR UPDATE

-- name: lock_memo
SELECT 1 FROM holdfast.memos WHERE namespace = %s AND space = %s AND key = %s FOR UPDATE

-- name: put_question
INSERT INTO holdfast.questions (run_no, name, number, kind, asked_of, body, asked_us, until_us,
  digest)
VALUES (%s, %s, %s, %s, %s, convert_from(%s, 'UTF8'), %s, %s, %s)
ON CONFLICT (run_no, name) DO UPDATE SET number = excluded.number, kind = excluded.kind,
  asked_of = excluded.asked_of, body = excluded.body, asked_us = excluded.asked_us,
  until_us = excluded.until_us, digest = excluded.digest

-- name: close_question
DELETE FROM holdfast.questions WHERE run_no = %s AND name = %s

-- name: close_questions
DELETE FROM holdfast.questions WHERE run_no = %s

-- name: put_account
INSERT INTO holdfast.accounts ({account_columns}, root_hash)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (namespace, root) DO UPDATE SET opened_us = excluded.opened_us,
  usd_nanos = excluded.usd_nanos, tokens = excluded.tokens, steps = excluded.steps,
  wall_us = excluded.wall_us, spent_usd_nanos = excluded.spent_usd_nanos,
  spent_tokens = excluded.spent_tokens, spent_steps = excluded.spent_steps, digest = excluded.digest

-- name: add_account
INSERT INTO holdfast.accounts ({account_columns}, root_hash)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (namespace, root) DO NOTHING

-- name: put_memo
INSERT INTO holdfast.memos (namespace, space, key, value, expires_us, version, updated_us, run_id,
  digest, key_hash)
VALUES (%s, %s, %s, convert_from(%s, 'UTF8'), %s, %s, %s, %s, %s, %s)
ON CONFLICT (namespace, space, key) DO UPDATE SET value = excluded.value,
  expires_us = excluded.expires_us, version = excluded.version, updated_us = excluded.updated_us,
  run_id = excluded.run_id, digest = excluded.digest

-- name: put_measure
INSERT INTO holdfast.measures (namespace, at_us, process, flow, body, digest)
VALUES (%s, %s, %s, %s, convert_from(%s, 'UTF8'), %s)
ON CONFLICT (namespace, at_us, process, flow) DO UPDATE SET body = excluded.body,
  digest = excluded.digest

-- name: measures
SELECT {measure_columns} FROM holdfast.measures
WHERE namespace = %s AND at_us >= %s AND at_us < %s
ORDER BY at_us, process, flow LIMIT %s

-- name: drop_measures
DELETE FROM holdfast.measures WHERE (namespace, at_us, process, flow) IN (
  SELECT namespace, at_us, process, flow FROM holdfast.measures
  WHERE namespace = %s AND at_us < %s
  ORDER BY at_us, process, flow LIMIT %s FOR UPDATE SKIP LOCKED)
RETURNING 1

-- name: expired_memos
SELECT {memo_columns} FROM holdfast.memos
WHERE namespace = %(namespace)s AND expires_us <= %(at_us)s AND value IS NOT NULL
ORDER BY expires_us, space, key LIMIT %(limit)s

-- name: expired_memos_of_space
SELECT {memo_columns} FROM holdfast.memos
WHERE namespace = %(namespace)s AND space = %(space)s AND expires_us <= %(at_us)s
  AND value IS NOT NULL
ORDER BY expires_us, key LIMIT %(limit)s

-- name: stale_memos
SELECT {memo_columns} FROM holdfast.memos
WHERE namespace = %s AND coalesce(CASE WHEN value IS NULL THEN updated_us END, expires_us) < %s
ORDER BY namespace, space, key LIMIT %s FOR UPDATE SKIP LOCKED

-- name: remove_memo
DELETE FROM holdfast.memos WHERE namespace = %s AND space = %s AND key = %s

-- Removing a run: everything but its row, which says that the id was used.

-- name: fork_of
SELECT run_id FROM holdfast.runs
WHERE namespace = %s AND origin IS NOT NULL AND origin COLLATE "C" >= %s AND origin COLLATE "C" < %s
  AND deleted_us IS NULL
LIMIT 1

-- name: remove_entries
DELETE FROM holdfast.journal WHERE run_no = %s

-- name: remove_chunks
DELETE FROM holdfast.chunks WHERE run_no = %s

-- name: remove_messages
DELETE FROM holdfast.inbox WHERE run_no = %s

-- name: remove_keys
DELETE FROM holdfast.keys WHERE run_no = %s

-- name: remove_account
DELETE FROM holdfast.accounts WHERE namespace = %s AND root = %s

-- name: lock_run
SELECT run_no FROM holdfast.runs WHERE run_no = %s FOR UPDATE

-- name: lock_account
SELECT 1 FROM holdfast.accounts WHERE namespace = %s AND root = %s FOR UPDATE

-- name: lock_runs
SELECT run_no, digest FROM holdfast.runs WHERE run_no = ANY(%s::bigint[]) ORDER BY run_no FOR UPDATE

-- name: limit_columns
namespace, queue, concurrency, concurrency_per_key, rate, rate_per_key, period_us, paused, digest

-- name: put_limits
INSERT INTO holdfast.queues ({limit_columns}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (namespace, queue) DO UPDATE SET concurrency = excluded.concurrency,
  concurrency_per_key = excluded.concurrency_per_key, rate = excluded.rate, rate_per_key = excluded.rate_per_key,
  period_us = excluded.period_us, paused = excluded.paused, digest = excluded.digest

-- name: add_begun
INSERT INTO holdfast.begun (namespace, queue, at_us, run_no, limit_key)
SELECT %s, %s, %s, * FROM unnest(%s::bigint[], %s::text[])
ON CONFLICT DO NOTHING

-- name: forget_begun
DELETE FROM holdfast.begun WHERE namespace = %s AND queue = %s AND at_us <= %s

-- name: schedule_columns
namespace, name, flow, spec, cursor_us, paused, digest

-- name: put_schedule
INSERT INTO holdfast.schedules ({schedule_columns}) VALUES (%s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (namespace, name) DO UPDATE SET flow = excluded.flow, spec = excluded.spec,
  cursor_us = excluded.cursor_us, paused = excluded.paused, digest = excluded.digest


-- Reads -------------------------------------------------------------------------------------------

-- name: run_by_id
SELECT {run_columns} FROM holdfast.runs WHERE namespace = %s AND run_id = %s

-- name: runs_by_ids
SELECT {run_columns} FROM holdfast.runs WHERE namespace = %s AND run_id = ANY(%s::text[])

-- name: run_by_hash
SELECT {run_columns} FROM holdfast.runs WHERE id_hash = %s

-- name: run_both_ways
SELECT true, {run_columns} FROM holdfast.runs WHERE namespace = %s AND run_id = %s
UNION ALL
SELECT false, {run_columns} FROM holdfast.runs WHERE id_hash = %s

-- name: run_by_number
SELECT {run_columns} FROM holdfast.runs WHERE run_no = %s

-- name: runs_by_numbers
SELECT {run_columns} FROM holdfast.runs WHERE run_no = ANY(%s::bigint[]) ORDER BY run_no

-- name: run_by_id_locked
SELECT {run_columns} FROM holdfast.runs WHERE namespace = %s AND run_id = %s FOR UPDATE

-- name: run_stands
SELECT 1 FROM holdfast.runs WHERE run_no = %s AND epoch = %s AND last_seq = %s AND digest = %s

-- name: list_runs
SELECT {run_columns} FROM holdfast.runs
WHERE namespace = %(namespace)s
  AND (%(before)s::bigint IS NULL OR run_no < %(before)s::bigint)
  AND (%(status)s::text[] IS NULL OR status = ANY(%(status)s::text[]))
  AND (%(flow)s::text IS NULL OR flow = %(flow)s::text)
  AND (%(version)s::text IS NULL OR version = %(version)s::text)
  AND (%(prefix)s::text IS NULL
    OR (run_id >= %(prefix)s::text AND run_id < %(prefix_end)s::text))
  AND (%(part)s::text IS NULL OR strpos(run_id, %(part)s::text) > 0)
  AND (%(updated_before_us)s::bigint IS NULL OR updated_us < %(updated_before_us)s::bigint)
  AND (%(updated_after_us)s::bigint IS NULL OR updated_us >= %(updated_after_us)s::bigint)
  AND (%(queue)s::text IS NULL OR coalesce(queue, 'default') = %(queue)s::text)
  AND (%(held_reason)s::text IS NULL OR held_reason = %(held_reason)s::text)
  AND (%(parent)s::text IS NULL OR parent = %(parent)s::text)
  AND (NOT %(forks)s::boolean OR origin IS NOT NULL)
  AND deleted_us IS NULL
  AND (%(tag_part)s::text IS NULL OR position(%(tag_part)s::text IN tags) > 0)
  AND (%(tag)s::text IS NULL
    OR CASE WHEN position('\u0000' IN tags) = 0
      THEN tags::jsonb -> %(tag)s::text = to_jsonb(%(tag_value)s::text) END)
ORDER BY run_no DESC LIMIT %(limit)s

-- name: list_children
{list_runs}

-- name: held_on
WITH RECURSIVE found AS (
  (SELECT waiting_on AS token FROM holdfast.runs
   WHERE namespace = %(namespace)s AND status = 'held' AND waiting_on > %(after)s
   ORDER BY waiting_on LIMIT 1)
  UNION ALL
  SELECT (
    SELECT waiting_on FROM holdfast.runs
    WHERE namespace = %(namespace)s AND status = 'held' AND waiting_on > found.token
    ORDER BY waiting_on LIMIT 1)
  FROM found WHERE found.token < %(end)s
)
SELECT token FROM found WHERE token < %(end)s LIMIT %(limit)s

-- name: runs_waiting_on
SELECT {run_columns} FROM holdfast.runs WHERE waiting_on = %s AND namespace = %s ORDER BY run_no

-- name: owners_at_work
WITH RECURSIVE found AS (
  SELECT (SELECT min(owner) FROM holdfast.runs WHERE owner IS NOT NULL AND {open_runs}) AS owner
  UNION ALL
  SELECT (SELECT min(r.owner) FROM holdfast.runs AS r
    WHERE r.owner > found.owner AND r.{open_runs})
  FROM found WHERE found.owner IS NOT NULL
)
SELECT found.owner, coalesce(p.until_us, 0)
FROM found LEFT JOIN holdfast.pulses AS p ON p.owner = found.owner
WHERE found.owner IS NOT NULL

-- name: is_left
(owner = ANY(%(dead)s::bigint[])
  OR (owner = ANY(%(late)s::bigint[]) AND lease_until_us <= %(at_us)s))

-- name: claimable_runs
(SELECT {run_columns} FROM holdfast.runs
 WHERE namespace = %(namespace)s AND {open_runs} AND {is_left}
 ORDER BY run_no LIMIT %(limit)s)
UNION ALL
(SELECT {run_columns} FROM holdfast.runs WHERE namespace = %(namespace)s AND {due_always}
 ORDER BY run_no LIMIT %(limit)s)
UNION ALL
(SELECT {run_columns} FROM holdfast.runs WHERE namespace = %(namespace)s AND {due_by_time}
 ORDER BY run_no LIMIT %(limit)s)
UNION ALL
(SELECT {run_columns} FROM holdfast.runs
 WHERE namespace = %(namespace)s AND {due_by_message} AND coalesce(wake_us > %(at_us)s, true)
 ORDER BY run_no LIMIT %(limit)s)
ORDER BY run_no LIMIT %(limit)s

-- name: queues_ready
WITH RECURSIVE named AS (
  (SELECT coalesce(queue, 'default') AS queue FROM holdfast.runs
   WHERE namespace = %(namespace)s AND {due_always}
   ORDER BY coalesce(queue, 'default') LIMIT 1)
  UNION ALL
  SELECT (
    SELECT coalesce(queue, 'default') FROM holdfast.runs
    WHERE namespace = %(namespace)s AND {due_always}
      AND coalesce(queue, 'default') > named.queue
    ORDER BY coalesce(queue, 'default') LIMIT 1)
  FROM named WHERE named.queue IS NOT NULL
), timed AS (
  (SELECT coalesce(queue, 'default') AS queue FROM holdfast.runs
   WHERE namespace = %(namespace)s AND owner IS NULL AND {open_runs} AND wake_us IS NOT NULL
   ORDER BY coalesce(queue, 'default') LIMIT 1)
  UNION ALL
  SELECT (
    SELECT coalesce(queue, 'default') FROM holdfast.runs
    WHERE namespace = %(namespace)s AND owner IS NULL AND {open_runs} AND wake_us IS NOT NULL
      AND coalesce(queue, 'default') > timed.queue
    ORDER BY coalesce(queue, 'default') LIMIT 1)
  FROM timed WHERE timed.queue IS NOT NULL
)
SELECT queue FROM named WHERE queue IS NOT NULL
UNION
SELECT queue FROM timed WHERE queue IS NOT NULL AND EXISTS (
  SELECT 1 FROM holdfast.runs
  WHERE namespace = %(namespace)s AND coalesce(runs.queue, 'default') = timed.queue
    AND {due_by_time})
UNION
SELECT coalesce(queue, 'default') FROM holdfast.runs
WHERE namespace = %(namespace)s AND {due_by_message}
ORDER BY 1

-- name: for_this_worker
namespace = %(namespace)s AND coalesce(queue, 'default') = %(queue)s
  AND (NOT %(suspects)s OR claims >= %(suspect_at)s)
  AND (%(flows)s::text[] IS NULL
    OR (flow, version) IN (SELECT * FROM unnest(%(flows)s::text[], %(versions)s::text[])))
  AND (limit_key IS NULL OR limit_key <> ALL(%(full)s::text[]))
  AND (limit_key IS NULL OR epoch > 0 OR limit_key <> ALL(%(spent)s::text[]))
  AND (%(begins)s OR epoch > 0)
  AND run_no <> ALL(%(seen)s::bigint[])

-- name: ready_runs
WITH always AS (
  SELECT {run_columns} FROM holdfast.runs WHERE {for_this_worker} AND {due_always}
  ORDER BY -coalesce(priority, 0), run_no LIMIT %(limit)s
  FOR UPDATE SKIP LOCKED
), by_time AS (
  SELECT {run_columns} FROM holdfast.runs WHERE {for_this_worker} AND {due_by_time}
  ORDER BY -coalesce(priority, 0), run_no LIMIT %(limit)s
  FOR UPDATE SKIP LOCKED
), by_message AS (
  SELECT {run_columns} FROM holdfast.runs
  WHERE {for_this_worker} AND {due_by_message} AND coalesce(wake_us > %(at_us)s, true)
  ORDER BY -coalesce(priority, 0), run_no LIMIT %(limit)s
  FOR UPDATE SKIP LOCKED
)
SELECT * FROM (
  SELECT * FROM always UNION ALL SELECT * FROM by_time UNION ALL SELECT * FROM by_message
) AS found
ORDER BY -coalesce(priority, 0), run_no LIMIT %(limit)s

-- name: held_runs
SELECT {run_columns} FROM holdfast.runs
WHERE {for_this_worker} AND status = 'held' AND waiting_on = %(token)s
ORDER BY run_no LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: stranded
owner = ANY(%(owners)s::bigint[]) AND namespace = %(namespace)s AND {open_runs}
  AND (owner <> ALL(%(late)s::bigint[]) OR lease_until_us <= %(at_us)s)
  AND run_no <> ALL(%(working)s::bigint[])
  AND (%(queues)s::text[] IS NULL OR coalesce(queue, 'default') = ANY(%(queues)s::text[]))
  AND (%(flows)s::text[] IS NULL
    OR (flow, version) IN (SELECT * FROM unnest(%(flows)s::text[], %(versions)s::text[])))

-- name: stranded_suspects
SELECT run_no FROM holdfast.runs WHERE {stranded} AND claims >= %(suspect_at)s LIMIT 1

-- name: stranded_runs
SELECT {run_columns} FROM holdfast.runs
WHERE {stranded} AND (claims >= %(suspect_at)s) = %(suspects)s
ORDER BY -coalesce(priority, 0), run_no LIMIT %(limit)s
FOR UPDATE SKIP LOCKED

-- name: stray_runs
SELECT run_no FROM holdfast.runs
WHERE owner = %s AND namespace = %s AND {open_runs} AND run_no <> ALL(%s::bigint[]) LIMIT 1

-- name: all_limits
SELECT {limit_columns} FROM holdfast.queues ORDER BY namespace, queue

-- name: limits_locked
SELECT {limit_columns} FROM holdfast.queues WHERE namespace = %s AND queue = %s FOR UPDATE

-- name: running_by_key
SELECT limit_key, count(*) FROM holdfast.runs
WHERE owner IS NOT NULL AND {open_runs} AND namespace = %s AND coalesce(queue, 'default') = %s
GROUP BY limit_key

-- name: begun_by_key
SELECT limit_key, count(*) FROM holdfast.begun
WHERE namespace = %s AND queue = %s AND at_us > %s GROUP BY limit_key

-- name: queue_counts
SELECT coalesce(queue, 'default'),
  count(*) FILTER (WHERE owner IS NULL AND {open_runs} AND {due}),
  count(*) FILTER (WHERE owner IS NULL AND {open_runs} AND NOT {due}),
  count(*) FILTER (WHERE owner IS NOT NULL AND {open_runs} AND NOT {is_left}),
  count(*) FILTER (WHERE status = 'failed'),
  count(*) FILTER (WHERE status = 'held'),
  count(*) FILTER (WHERE status = 'held' AND held_reason = 'quarantined'),
  least(
    min(updated_us) FILTER (WHERE owner IS NULL AND {open_runs} AND {due}),
    min(greatest(updated_us, (SELECT p.until_us FROM holdfast.pulses AS p WHERE p.owner = runs.owner)
      - %(lease_us)s)) FILTER (WHERE owner IS NOT NULL AND {open_runs} AND {is_left})),
  count(*) FILTER (WHERE owner IS NOT NULL AND {open_runs} AND {is_left})
FROM holdfast.runs
WHERE namespace = %(namespace)s AND status IN ('queued', 'running', 'waiting', 'failed', 'held')
  AND deleted_us IS NULL
GROUP BY 1 ORDER BY 1

-- name: entries
SELECT {entry_columns} FROM holdfast.journal
WHERE run_no = %s AND seq BETWEEN %s AND %s ORDER BY seq

-- name: entry_before
SELECT run_no, seq, digest FROM holdfast.journal
WHERE run_no = %s AND seq < %s ORDER BY seq DESC LIMIT 1

-- name: chunk_range
SELECT run_no, number, digest, convert_to(body, 'UTF8') FROM holdfast.chunks
WHERE run_no = %s AND number BETWEEN %s AND %s ORDER BY number

-- name: key_by_name
SELECT {key_columns} FROM holdfast.keys WHERE namespace = %s AND effect = %s AND key = %s

-- name: key_by_hash
SELECT {key_columns} FROM holdfast.keys WHERE key_hash = %s

-- name: key_both_ways
SELECT true, k.* FROM ({key_by_name}) AS k UNION ALL SELECT false, k.* FROM ({key_by_hash}) AS k

-- name: keys_of_run
SELECT {key_columns} FROM holdfast.keys WHERE run_no = %s ORDER BY namespace, effect, key

-- The messages by their numbers, and what an index shows of them, in one statement: one state.
-- name: messages_both_ways
SELECT true, {message_columns} FROM holdfast.inbox
WHERE run_no = %s AND number BETWEEN %s AND %s
UNION ALL
SELECT false, run_no, NULL, message_id, NULL, NULL, NULL, NULL, NULL, NULL
FROM holdfast.inbox WHERE run_no = %s

-- name: messages_since
SELECT true, {message_columns} FROM holdfast.inbox
WHERE run_no = %s AND number > %s AND number <= %s
UNION ALL
SELECT false, run_no, number, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM holdfast.inbox WHERE run_no = %s AND taken_seq IS NULL AND number > %s

-- name: message_by_id
SELECT {message_columns} FROM holdfast.inbox WHERE run_no = %s AND message_id = %s

-- name: newest_message
SELECT run_no, number FROM holdfast.inbox WHERE run_no = %s AND number BETWEEN %s AND %s
ORDER BY number DESC LIMIT 1

-- name: messages_by_ids
SELECT {message_columns} FROM holdfast.inbox WHERE run_no = %s AND message_id = ANY(%s::text[])

-- The largest number of an inbox is the end of its index, however many messages there are.
-- name: inbox_ends
SELECT r.run_no, e.number FROM holdfast.runs AS r CROSS JOIN LATERAL (
  SELECT i.number FROM holdfast.inbox AS i WHERE i.run_no = r.run_no
  ORDER BY i.number DESC LIMIT 1) AS e
WHERE r.namespace = %s AND r.run_id = ANY(%s::text[])

-- name: messages_there
SELECT i.run_no, i.message_id FROM unnest(%s::text[], %s::text[]) AS w (run_id, message_id)
JOIN holdfast.runs AS r ON r.namespace = %s AND r.run_id = w.run_id
JOIN holdfast.inbox AS i ON i.run_no = r.run_no AND i.message_id = w.message_id

-- name: news
SELECT run_no, max(number) FROM holdfast.inbox
WHERE taken_seq IS NULL AND run_no = ANY(%s::bigint[]) GROUP BY run_no

-- name: open_questions
SELECT {question_columns} FROM holdfast.questions AS q
JOIN holdfast.runs AS r ON r.run_no = q.run_no
WHERE r.namespace = %(namespace)s ORDER BY q.asked_us, r.run_id, q.name LIMIT %(limit)s

-- name: questions_of_run
SELECT {question_columns} FROM holdfast.questions AS q WHERE q.run_no = %s
ORDER BY q.asked_us, q.name

-- name: account_by_name
SELECT {account_columns} FROM holdfast.accounts WHERE namespace = %s AND root = %s

-- name: account_by_hash
SELECT {account_columns} FROM holdfast.accounts WHERE root_hash = %s

-- name: account_both_ways
SELECT true, p.* FROM ({account_by_name}) AS p UNION ALL SELECT false, p.* FROM ({account_by_hash}) AS p

-- name: accounts_locked
SELECT {account_columns} FROM holdfast.accounts
WHERE namespace = %s AND root = ANY(%s::text[]) ORDER BY root FOR UPDATE

-- name: memo_by_name
SELECT {memo_columns} FROM holdfast.memos WHERE namespace = %s AND space = %s AND key = %s

-- name: memo_by_hash
SELECT {memo_columns} FROM holdfast.memos WHERE key_hash = %s

-- name: memo_both_ways
SELECT true, m.* FROM ({memo_by_name}) AS m UNION ALL SELECT false, m.* FROM ({memo_by_hash}) AS m

-- name: list_memos
SELECT {memo_columns} FROM holdfast.memos
WHERE namespace = %(namespace)s AND space = %(space)s AND key >= %(prefix)s AND key > %(after)s
  AND (%(end)s::text IS NULL OR key < %(end)s::text)
ORDER BY key LIMIT %(limit)s

-- name: spaces
SELECT DISTINCT space FROM holdfast.memos WHERE namespace = %s

-- name: owner_row
SELECT {owner_columns} FROM holdfast.owners WHERE owner = %s

-- name: pulse_of
SELECT until_us FROM holdfast.pulses WHERE owner = %s

-- name: pulses_after
SELECT owner, until_us, facts FROM holdfast.pulses WHERE until_us > %s ORDER BY owner

-- name: schedule
SELECT {schedule_columns} FROM holdfast.schedules WHERE namespace = %s AND name = %s

-- name: all_schedules
SELECT {schedule_columns} FROM holdfast.schedules ORDER BY namespace, name

-- Every acknowledged head is an entry of the journal, unless the run was deleted since; what is
-- listed here was lost.
-- name: missing_heads
SELECT a.run_no FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[]) AS a (run_no, seq, head)
LEFT JOIN holdfast.journal AS j ON j.run_no = a.run_no AND j.seq = a.seq
WHERE j.digest IS DISTINCT FROM a.head AND NOT EXISTS (
  SELECT 1 FROM holdfast.runs AS d
  WHERE d.run_no = a.run_no AND d.deleted_us IS NOT NULL
    AND (d.last_seq > a.seq OR (d.last_seq = a.seq AND d.head = a.head)))


-- Opening -----------------------------------------------------------------------------------------

-- name: lock_schema
SELECT pg_advisory_xact_lock(5208208757389214804)

-- The catalog itself is read: to_regclass would answer from what this session remembers, also after
-- it has waited for the lock under which another one made the schema.
-- name: has_schema
SELECT EXISTS (SELECT FROM pg_catalog.pg_class AS c
                 JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
               WHERE n.nspname = 'holdfast' AND c.relname = 'schema'), pg_is_in_recovery(),
  current_setting('fsync'), current_setting('server_version_num')::bigint,
  current_setting('server_encoding')

-- name: tables
SELECT c.relname::text FROM pg_catalog.pg_class AS c
  JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'holdfast' AND c.relkind IN ('r', 'p')

-- name: schema_version
SELECT version, works_from FROM holdfast.schema

-- name: set_schema_version
INSERT INTO holdfast.schema (version, works_from) VALUES (%s, %s)
ON CONFLICT (only_row) DO UPDATE SET version = excluded.version, works_from = excluded.works_from

-- name: store_row
SELECT store_id, incarnation, accepted_through, lost,
  (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint,
  (SELECT accepted FROM holdfast.incarnations WHERE incarnation = 1)
FROM holdfast.store

-- name: add_store
INSERT INTO holdfast.store (store_id, incarnation, accepted_through, lost) VALUES (%s, 1, 0, NULL)

-- name: put_lost
UPDATE holdfast.store SET lost = %s WHERE lost IS NULL

-- name: accept_data_loss
UPDATE holdfast.store SET lost = NULL, incarnation = incarnation + 1,
  accepted_through = (SELECT coalesce(max(run_no), 0) FROM holdfast.runs)
RETURNING incarnation, accepted_through

-- name: add_incarnation
INSERT INTO holdfast.incarnations (incarnation, at_us, actor, accepted, digest)
VALUES (%s, %s, %s, %s, %s)

-- name: clock
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  (SELECT ahead_us FROM holdfast.store),
  greatest(
    (SELECT max(registered_us) FROM
      (SELECT registered_us FROM holdfast.owners ORDER BY owner DESC LIMIT 100) AS owners),
    (SELECT max(updated_us) FROM
      (SELECT updated_us FROM holdfast.runs ORDER BY run_no DESC LIMIT 100) AS runs),
    0)

-- name: set_ahead
UPDATE holdfast.store SET ahead_us = greatest(ahead_us, %s)


-- Verification ------------------------------------------------------------------------------------

-- name: all_runs
SELECT {run_columns} FROM holdfast.runs ORDER BY run_no

-- name: count_runs
SELECT count(*) FROM holdfast.runs

-- name: all_keys
SELECT {key_columns} FROM holdfast.keys ORDER BY namespace, effect, key

-- name: all_messages
SELECT {message_columns} FROM holdfast.inbox ORDER BY run_no, number

-- name: all_owners
SELECT {owner_columns} FROM holdfast.owners ORDER BY owner

-- name: all_chunks
SELECT run_no, number, digest, convert_to(body, 'UTF8') FROM holdfast.chunks ORDER BY run_no, number

-- name: all_questions
SELECT {question_columns} FROM holdfast.questions AS q ORDER BY q.run_no, q.name

-- name: all_accounts
SELECT {account_columns} FROM holdfast.accounts ORDER BY namespace, root

-- name: all_memos
SELECT {memo_columns} FROM holdfast.memos ORDER BY namespace, space, key

-- name: all_measures
SELECT {measure_columns} FROM holdfast.measures ORDER BY namespace, at_us, process, flow

-- name: questions_of_nobody
SELECT r.run_id, q.name FROM holdfast.questions AS q JOIN holdfast.runs AS r ON r.run_no = q.run_no
WHERE r.status IN ('completed', 'cancelled', 'rolled_back') LIMIT 100

-- name: rows_without_run
WITH there AS (SELECT run_no FROM holdfast.runs WHERE deleted_us IS NULL)
SELECT DISTINCT 'journal', run_no FROM holdfast.journal
WHERE run_no NOT IN (SELECT run_no FROM there)
UNION ALL
SELECT DISTINCT 'chunks', run_no FROM holdfast.chunks
WHERE run_no NOT IN (SELECT run_no FROM there)
UNION ALL
SELECT DISTINCT 'inbox', run_no FROM holdfast.inbox
WHERE run_no NOT IN (SELECT run_no FROM there)
UNION ALL
SELECT DISTINCT 'questions', run_no FROM holdfast.questions
WHERE run_no NOT IN (SELECT run_no FROM there)
UNION ALL
SELECT DISTINCT 'keys', run_no FROM holdfast.keys
WHERE run_no NOT IN (SELECT run_no FROM there)
LIMIT 100
