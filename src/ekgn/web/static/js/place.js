// Where the reader is: the scroll position that Back returns to, and the focus that must not get lost.

const PATIENCE = 4000; // milliseconds that the focus is kept while a page comes in
const QUIET = 600, LONGEST = 30000; // a page has come in when it keeps its height for so long; waited for at most
let goal = null; // the position on its way to, if any

/** Note the scroll position in this entry of the history. */
export function noteScroll() {
  if (goal === null) history.replaceState({ ...history.state, scroll: scrollY }, "");
}

/**
 * Scroll to where this entry of the history was left, and stay there until its page has come in: the page before
 * may still be there and be as long, and then there is hardly any page for a while.
 */
export function restoreScroll() {
  const wanted = history.state?.scroll ?? 0, start = performance.now();
  let height = -1, since = start;
  const attempt = (now) => {
    if (goal !== wanted) return;
    if (Math.abs(scrollY - wanted) > 1) scrollTo({ top: wanted, behavior: "instant" });
    const high = document.documentElement.scrollHeight;
    if (high !== height || Math.abs(scrollY - wanted) > 1) [height, since] = [high, now];
    if (wanted > 0 && now - since < QUIET && now - start < LONGEST) requestAnimationFrame(attempt);
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
  for (const kind of ["wheel", "touchmove", "keydown", "pointerdown"]) addEventListener(kind, () => { goal = null; }, { passive: true });
  restoreScroll();
}
