// Text of others, made inert: nothing in it is unseen, and nothing in it moves what stands around it.
// The set of what is escaped is that of the command line (`_engine/text.py`). Pure: no nodes here.
// @ts-check

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\u{1D159}]|(?! )\p{White_Space}/u;
const MARK = /\p{M}/u;
const SPECIAL = new RegExp(`${HIDDEN.source}|${MARK.source}`, "u");
const SHORT = new Map([["\n", "\\n"], ["\r", "\\r"], ["\t", "\\t"]]);
const MARKS_MAX = 4;

/** Return text with everything that is not plainly visible escaped; with `lines`, breaks stay. Marks
 *  that stand on a letter stay, if they are not too many; those that stand on nothing do not.
 *  @param {any} text
 *  @param {{ lines?: boolean }} [options] */
export function visible(text, { lines = false } = {}) {
  const given = said(text);
  if (!SPECIAL.test(given)) return given;
  let made = "";
  let room = 0; // How many marks the last letter may still have.
  for (const char of given) {
    const isMark = MARK.test(char);
    if (lines && char === "\n") {
      made += char;
      room = 0;
    } else if (HIDDEN.test(char) || (isMark && room === 0)) {
      made += escaped(char);
      room = 0;
    } else {
      made += char;
      room = isMark ? room - 1 : MARKS_MAX;
    }
  }
  return made;
}

/** What is no text is never asked to make itself one.
 *  @param {any} value */
function said(value) {
  return value !== null && typeof value === "object" ? "(not a text)" : String(value);
}

/** @param {string} char */
function escaped(char) {
  const short = SHORT.get(char);
  if (short !== undefined) return short;
  const code = char.codePointAt(0) ?? 0;
  if (code < 0x100) return "\\x" + code.toString(16).padStart(2, "0");
  if (code < 0x10000) return "\\u" + code.toString(16).padStart(4, "0");
  return "\\U" + code.toString(16).padStart(8, "0");
}

// -- right to left --------------------------------------------------------------------------------

const FROM_RIGHT = "[\\u0590-\\u08ff\\ufb1d-\\ufdff\\ufe70-\\ufeff\\u{10800}-\\u{10fff}\\u{1e800}-\\u{1efff}]";
const WORDS = new RegExp(`(${FROM_RIGHT}(?: *${FROM_RIGHT}|\\p{M})*)`, "gu");

/** Cut text so that every second piece is words that are written from right to left. Each of them
 *  is laid out by itself; digits and signs between them stay where they are.
 *  @param {string} text */
export function pieces(text) {
  return text.split(WORDS);
}

/** The same for where no element can stand (titles, options): each such piece between isolates.
 *  @param {string} text */
export function isolated(text) {
  return text.replace(WORDS, "\u2068$1\u2069");
}
