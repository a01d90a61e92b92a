// Server-sent events, read with fetch: an EventSource cannot send the header of the session.
// @ts-check

/** @typedef {{ event: string, data: string, id: string }} ServerEvent */

const QUIET_MS = 45000;

/** Parses the text of a stream, in pieces, into events: { event, data, id }. */
export class EventParser {
  id = "";
  /** @type {number | null} */
  retryMs = null;
  rest = "";
  event = "";
  /** @type {string[]} */
  data = [];

  begin() {
    this.event = "";
    this.data = [];
  }

  /** Return the events that this piece completes.
   *  @param {string} piece
   *  @returns {ServerEvent[]} */
  push(piece) {
    const text = this.rest + piece;
    // A carriage return at the end may be half of a line break.
    const until = text.endsWith("\r") ? text.length - 1 : text.length;
    const lines = text.slice(0, until).split(/\r\n|\n|\r/);
    this.rest = lines.pop() + text.slice(until);
    return lines.map((line) => this.take(line)).filter((event) => event !== null);
  }

  /** Parse one line; an empty one ends an event.
   *  @param {string} line
   *  @returns {ServerEvent | null} */
  take(line) {
    if (line) return this.field(line);
    const { data, event, id } = this;
    this.begin();
    return data.length ? { event: event || "message", data: data.join("\n"), id } : null;
  }

  /**
   * @param {string} line
   * @returns {null}
   */
  field(line) {
    const [, name, value] = /^([^:]*)(?:: ?([^]*))?$/.exec(line) ?? [];
    if (name === "event") this.event = value ?? "";
    else if (name === "data") this.data.push(value ?? "");
    else if (name === "id" && !value?.includes("\0")) this.id = value ?? "";
    else if (name === "retry" && /^\d+$/.test(value ?? "")) this.retryMs = Number(value);
    return null;
  }
}

/** Pass every event of a response to `heard`, until it ends. Stop if the stream is silent for
 *  longer than the server's interval of comments. Returns the time to wait before the next try, if
 *  the server sent one.
 *  @param {Response} answer
 *  @param {(event: ServerEvent) => void} heard
 *  @param {() => void} stop
 *  @returns {Promise<number | null>} */
export async function listen(answer, heard, stop) {
  const parser = new EventParser();
  if (answer.body === null) return null;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let quiet = 0;
  const still = () => {
    clearTimeout(quiet);
    quiet = setTimeout(stop, QUIET_MS);
  };
  try {
    for (;;) {
      still();
      const { value, done } = await reader.read();
      if (done) return parser.retryMs;
      for (const event of parser.push(value)) heard(event);
    }
  } finally {
    clearTimeout(quiet);
  }
}
