-- Version 5: what held runs are held on, and how far the store's clock is ahead. It only adds. Some
-- stores of version 4 have the index already.

-- Runs that are held until something else happens: a key is settled, other code is deployed.
CREATE INDEX IF NOT EXISTS runs_held_on ON holdfast.runs (namespace, waiting_on, run_no)
  WHERE status = 'held' AND waiting_on IS NOT NULL;

-- How far the store's clock is ahead of the server's: transactions were committed while the server's
-- time was ahead, and the clock never goes back.
ALTER TABLE holdfast.store ADD COLUMN ahead_us bigint NOT NULL DEFAULT 0;
