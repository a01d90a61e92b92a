// Maps time to positions on a picture. Pure. Long idle times can be folded: a run that worked for
// ten seconds and waited for three days would otherwise be one long empty line.
// @ts-check

/** @typedef {[number, number]} Span */
/** @typedef {{ start: number, end: number, from: number, size: number, folded: boolean }} Piece */

const FOLDED = 0.08;
const FOLD_FROM = 0.12;

/** Return pieces `{start, end, from, size, folded}` (all in ms) that map time to a folded axis.
 *  @param {number} start
 *  @param {number} end
 *  @param {Span[]} busy
 *  @param {boolean} fold
 *  @returns {Piece[]} */
export function pieces(start, end, busy, fold) {
  const total = Math.max(1, end - start);
  const within = busy.map(([a, b]) => /** @type {Span} */ ([Math.max(start, a), Math.min(end, b)]));
  const merged = joined(within.filter(([a, b]) => b >= a));
  const worked = merged.reduce((sum, [a, b]) => sum + b - a, 0);
  const most = Math.max(1, Math.max(worked, total * 0.002) * FOLDED);
  /** @type {Piece[]} */
  const found = [];
  let from = 0;
  let at = start;
  const add = (/** @type {number} */ until, /** @type {boolean} */ isIdle) => {
    if (until <= at) return;
    const real = until - at;
    const folded = fold && isIdle && real > most / FOLDED * FOLD_FROM && real > most;
    const size = folded ? most : real;
    const last = found.at(-1);
    if (last && !last.folded && !folded) {
      last.end = until;
      last.size += size;
    } else found.push({ start: at, end: until, from, size, folded });
    from += size;
    at = until;
  };
  for (const [a, b] of merged) {
    add(a, true);
    add(b, false);
  }
  add(end, true);
  if (!found.length) found.push({ start, end: start + 1, from: 0, size: 1, folded: false });
  return found;
}

/**
 * @param {Span[]} spans
 * @returns {Span[]}
 */
function joined(spans) {
  const sorted = spans.toSorted((one, other) => one[0] - other[0]);
  /** @type {Span[]} */
  const found = [];
  for (const [a, b] of sorted) {
    const last = found.at(-1);
    if (last && a <= last[1]) last[1] = Math.max(last[1], b);
    else found.push([a, b]);
  }
  return found;
}

/** The length of the folded axis.
 *  @param {Piece[]} found */
export function extent(found) {
  const last = found[found.length - 1];
  return last.from + last.size;
}

/** The position of a time on the folded axis.
 *  @param {Piece[]} found
 *  @param {number} at */
export function placed(found, at) {
  const piece = found.find((one) => at <= one.end) ?? found[found.length - 1];
  const share = (at - piece.start) / Math.max(1e-6, piece.end - piece.start);
  return piece.from + Math.min(1, Math.max(0, share)) * piece.size;
}

/** The time at a position of the folded axis.
 *  @param {Piece[]} found
 *  @param {number} place */
export function timed(found, place) {
  const piece = found.find((one) => place <= one.from + one.size) ?? found[found.length - 1];
  const share = (place - piece.from) / Math.max(1e-9, piece.size);
  return piece.start + Math.min(1, Math.max(0, share)) * (piece.end - piece.start);
}

const STEPS = [
  ...[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3],
  ...[3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5],
];

/** Round times for the ticks of a piece of the axis, at most `most`.
 *  @param {number} start
 *  @param {number} from
 *  @param {number} until
 *  @param {number} most */
export function ticks(start, from, until, most) {
  const longest = STEPS[STEPS.length - 1];
  const many = longest * Math.ceil((until - from) / longest / most);
  const step = STEPS.find((one) => (until - from) / one <= most) ?? many;
  const found = [];
  const first = Math.ceil((from - start) / step);
  for (let n = first; start + n * step <= until; n++) found.push(start + n * step);
  return found;
}
