-- Version 4: measures, so that trends can be drawn of a fleet. It only adds a table.

-- What one process did for one flow in one minute, as JSON; flow '' is the process itself. A measure
-- that is written again is replaced by a fuller one.
CREATE TABLE holdfast.measures (
  namespace text COLLATE "C" NOT NULL,
  at_us bigint NOT NULL,
  process text COLLATE "C" NOT NULL,
  flow text COLLATE "C" NOT NULL,
  body text NOT NULL,
  digest bytea NOT NULL,
  PRIMARY KEY (namespace, at_us, process, flow)
);
