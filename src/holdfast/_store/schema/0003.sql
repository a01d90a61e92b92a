-- Version 3: time, people and control. What a run waits for, asks, spends and remembers.
--
-- It only adds. The new columns are no part of a run's digest while it does not use them.

-- Up to which message a waiting run has looked; a later one wakes it.
ALTER TABLE runs ADD COLUMN heard INTEGER;
-- The run that started this one, and the top of the family.
ALTER TABLE runs ADD COLUMN parent TEXT;
ALTER TABLE runs ADD COLUMN root TEXT;
-- Of a fork: where it came from, and from which chunk on its values are its own.
ALTER TABLE runs ADD COLUMN origin TEXT;
-- When its journal was removed; the row stays, so that the id is not given again.
ALTER TABLE runs ADD COLUMN deleted_us INTEGER;
