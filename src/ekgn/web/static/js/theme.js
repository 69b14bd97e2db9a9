// Before anything is painted: the theme that was chosen here last, if one was.
try {
  const chosen = localStorage.getItem("ekgn-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch { /* storage can be switched off */ }
