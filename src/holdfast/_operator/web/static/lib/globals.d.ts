// What the page notes on elements that it keeps, and what TypeScript does not know of browsers yet.
// Nothing of it is served.

import type { Bar } from "../pages/bars.js";

/** What can stand in an element. */
export type Child = Node | string | number | boolean | null | undefined | Child[];

declare global {
  interface Element {
    /** The nodes that `keep` made, by key. */
    kept?: Map<string, Element>;
    /** What is shown in it, to tell whether that changes. */
    shown?: string | null;
    told?: string;
    /** The bar of a timeline that it draws. */
    bar?: Bar;
    /** Whether `reading` has read it before, and the box that says that it cannot now. */
    wasRead?: boolean;
    unread?: Element | null;
  }

  interface JSON {
    rawJSON(text: string): object;
    parse(text: string, reviver?: (this: any, key: string, value: any, context?: { source?: string }) => any): any;
  }
}
