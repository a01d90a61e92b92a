-- Version 3: time, people and control. What a run waits for, asks, spends and remembers.
--
-- It only adds. The new columns are no part of a run's digest while it does not use them.

-- Up to which message a waiting run has looked; a later one wakes it.
ALTER TABLE holdfast.runs ADD COLUMN heard bigint;
-- The run that started this one, and the top of the family.
ALTER TABLE holdfast.runs ADD COLUMN parent text;
ALTER TABLE holdfast.runs ADD COLUMN root text;
-- Of a fork: where it came from, and from which chunk on its values are its own.
ALTER TABLE holdfast.runs ADD COLUMN origin text;
-- When its journal was removed; the row stays, so that the id is not given again.
ALTER TABLE holdfast.runs ADD COLUMN deleted_us bigint;
