// Sets the chosen theme before the first paint. Without a choice, the system's theme applies.
// @ts-check
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("holdfast-theme");
  } catch {
    // Storage may be disabled; then the system's theme applies.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
