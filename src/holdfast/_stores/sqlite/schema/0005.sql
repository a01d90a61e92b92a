-- Version 5: what held runs are held on. It only adds. Some stores of version 4 have it already.

-- Runs that are held until something else happens: a key is settled, other code is deployed.
CREATE INDEX IF NOT EXISTS runs_held_on ON runs (namespace, waiting_on, run_no)
WHERE status = 'held' AND waiting_on IS NOT NULL;
