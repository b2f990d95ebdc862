// Before anything is painted: the theme that was chosen last. A script of its own, as nothing inline is run.
"use strict";
try {
  const theme = localStorage.getItem("rsm-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Storage is switched off: the system's theme it is.
}
