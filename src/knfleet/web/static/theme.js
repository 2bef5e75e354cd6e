// Sets the chosen theme before anything is drawn.
"use strict";
try {
  const chosen = localStorage.getItem("knfleet-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* a browser that keeps nothing follows the system */ }
