// Where the reader is: the scroll position that Back returns to, and the focus that must not get lost.

const PATIENCE = 4000; // milliseconds that a page may take to be as long, or as far, as it was
let goal = null; // the position on its way to, if any

/** Note the scroll position in this entry of the history. */
export function noteScroll() {
  if (goal === null) history.replaceState({ ...history.state, scroll: scrollY }, "");
}

/** Scroll to where this entry of the history was left, as soon as the page is long enough. */
export function restoreScroll() {
  const wanted = history.state?.scroll ?? 0;
  const until = performance.now() + PATIENCE;
  const attempt = () => {
    if (goal !== wanted) return;
    scrollTo({ top: wanted, behavior: "instant" });
    if (Math.abs(scrollY - wanted) > 1 && performance.now() < until) requestAnimationFrame(attempt);
    else goal = null;
  };
  goal = wanted;
  requestAnimationFrame(attempt);
}

/** Keep the focus on the heading while the content of a new page comes in. */
export function focusHeading() {
  const main = document.getElementById("main");
  const lost = () => !document.activeElement || document.activeElement === document.body || !document.activeElement.isConnected;
  const take = () => main.querySelector("h1")?.focus({ preventScroll: true });
  const watch = new MutationObserver(() => lost() && take());
  const end = () => { watch.disconnect(); removeEventListener("pointerdown", end); removeEventListener("keydown", end); };
  watch.observe(main, { childList: true, subtree: true });
  addEventListener("pointerdown", end);
  addEventListener("keydown", end);
  setTimeout(end, PATIENCE);
  requestAnimationFrame(take);
}

/** Watch the scrolling from now on, in place of the browser, which does so before the content is there. */
export function watchScroll() {
  history.scrollRestoration = "manual";
  let timer = 0;
  addEventListener("scroll", () => { clearTimeout(timer); timer = setTimeout(noteScroll, 120); }, { passive: true });
  for (const kind of ["wheel", "touchmove", "keydown"]) addEventListener(kind, () => { goal = null; }, { passive: true });
  restoreScroll();
}
