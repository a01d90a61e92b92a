// What is checked in the modules of the page beside their types: see tools.py, which calls this.

import js from "@eslint/js";
import globals from "globals";

const rules = {
  ...js.configs.recommended.rules,
  eqeqeq: "error",
  "no-implicit-globals": "error",
  "no-unused-vars": ["error", { args: "after-used" }],
};

export default [
  {
    files: ["src/holdfast/_operator/web/static/**/*.js"],
    languageOptions: { sourceType: "module", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules,
  },
  {
    // It is loaded before anything is drawn, which a module is not.
    files: ["src/holdfast/_operator/web/static/lib/theme.js"],
    languageOptions: { sourceType: "script" },
  },
  {
    files: ["tests/web_unit/*.js"],
    languageOptions: { sourceType: "module", globals: globals.node },
    rules,
  },
];
