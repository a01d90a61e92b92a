-- Version 4: measures, so that trends can be drawn of a fleet. It only adds a table.

-- What one process did for one flow in one minute, as JSON; flow '' is the process itself. A measure
-- that is written again is replaced by a fuller one.
CREATE TABLE measures (
  id INTEGER PRIMARY KEY,
  namespace TEXT NOT NULL,
  at_us INTEGER NOT NULL,
  process TEXT NOT NULL,
  flow TEXT NOT NULL,
  body TEXT NOT NULL,
  digest BLOB NOT NULL,
  UNIQUE (namespace, at_us, process, flow)
);
