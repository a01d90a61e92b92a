// Where the modules of the page are, for their tests.

/** Import a module of the page. */
export function page(name) {
  return import(new URL(`../../src/holdfast/_operator/web/static/${name}`, import.meta.url).href);
}
