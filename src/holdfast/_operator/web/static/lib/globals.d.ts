// Properties that the page adds to elements, and browser features that TypeScript does not know yet.
// This file is not served.

import type { Bar } from "../pages/bars.js";

/** The possible children of an element. */
export type Child = Node | string | number | boolean | null | undefined | Child[];

declare global {
  interface Element {
    /** The nodes that `keep` made, by key. */
    kept?: Map<string, Element>;
    /** A key of its content, to detect changes. */
    shown?: string | null;
    told?: string;
    /** The bar of a timeline that it draws. */
    bar?: Bar;
    /** Whether `reading` has read it before, and the box that reports a failure. */
    wasRead?: boolean;
    unread?: Element | null;
  }

  interface JSON {
    rawJSON(text: string): object;
    parse(text: string, reviver?: (this: any, key: string, value: any, context?: { source?: string }) => any): any;
  }
}
