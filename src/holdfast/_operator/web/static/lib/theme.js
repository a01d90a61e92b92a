// The chosen theme, set before anything is drawn. Without a choice the system's is taken.
// @ts-check
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("holdfast-theme");
  } catch {
    // Storage may be switched off; then the system's theme it is.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
