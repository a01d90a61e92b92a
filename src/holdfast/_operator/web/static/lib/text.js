// Neutralizes untrusted text: nothing in it is invisible, and nothing in it reorders its
// surroundings. The set of escaped characters is that of the command line (`_engine/text.py`).
// Pure: no nodes.
// @ts-check

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800\u{1D159}]|(?! )\p{White_Space}/u;
const MARK = /\p{M}/u;
const SPECIAL = new RegExp(`${HIDDEN.source}|${MARK.source}`, "u");
const SHORT = new Map([["\n", "\\n"], ["\r", "\\r"], ["\t", "\\t"]]);
const MARKS_MAX = 4;

/** Return text with all invisible characters escaped; with `lines`, line breaks stay. Combining
 *  marks on a letter stay, up to a limit; marks without a letter are escaped.
 *  @param {any} text
 *  @param {{ lines?: boolean }} [options] */
export function visible(text, { lines = false } = {}) {
  const given = said(text);
  if (!SPECIAL.test(given)) return given;
  let made = "";
  let room = 0; // How many more marks the last letter may have.
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

/** Return a value as a string; never call the `toString` of an object.
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

/** Split text so that every second piece is right-to-left words. Each of them is laid out
 *  separately; digits and punctuation between them keep their position.
 *  @param {string} text */
export function pieces(text) {
  return text.split(WORDS);
}

/** The same for places without elements (titles, options): each such piece between isolate
 *  characters.
 *  @param {string} text */
export function isolated(text) {
  return text.replace(WORDS, "\u2068$1\u2069");
}
