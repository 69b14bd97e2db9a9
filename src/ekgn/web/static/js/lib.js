// The few things every page needs: the renderer, the address, the API, words for numbers.
export { html, render, useState, useEffect, useRef, useMemo, useCallback, useLayoutEffect } from "../vendor/htm-preact/htm-preact.mjs";
import { html, useState, useEffect, useRef, useCallback } from "../vendor/htm-preact/htm-preact.mjs";
import { noteScroll } from "./place.js";

/** An address with only those parameters that have a value. */
export function address(path, params = {}) {
  const kept = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(kept).toString();
  return query ? `${path}?${query}` : path;
}

export const runPath = (run, page = "", params = {}) =>
  address(`/runs/${encodeURIComponent(run)}${page && "/" + page}`, params);

/** Go to another page of the site; `trail` is what led here. */
export function go(url, { replace = false, trail = [] } = {}) {
  noteScroll();
  history[replace ? "replaceState" : "pushState"]({ trail }, "", url);
  dispatchEvent(new Event("ekgn:moved"));
}

/** The same page with other filters: no entry of its own in the history, the focus and the place on it stay. */
export function refine(url) {
  history.replaceState(history.state, "", url);
  dispatchEvent(new Event("ekgn:refined"));
}

/** What is at hand, from the parameters of a page: an entity, or a question. */
export function atHand({ entity, head, relation, tail }) {
  return { entity: entity ?? head ?? tail, head, relation, tail };
}

export class ApiError extends Error {
  constructor(code, message, suggestions = []) {
    super(message);
    Object.assign(this, { code, suggestions });
  }
}

/** Send JSON to the API; the reply, or an ApiError. */
export const sendJson = (url, body) =>
  fetchJson(url, undefined, { method: "POST", body: JSON.stringify(body), headers: { accept: "application/json", "content-type": "application/json" } });

/** JSON from the API; every failure is an ApiError. */
export async function fetchJson(url, signal, options = { headers: { accept: "application/json" } }) {
  let reply;
  try {
    reply = await fetch(url, { signal, credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    dispatchEvent(new Event("ekgn:offline"));
    throw new ApiError("offline", "The server does not answer. It may have been stopped.");
  }
  dispatchEvent(new Event("ekgn:online"));
  let body = null;
  try { body = await reply.json(); } catch (error) { if (error.name === "AbortError") throw error; }
  if (reply.status === 401) location.assign("/login");
  if (!reply.ok || body === null) {
    const told = body?.error;
    throw new ApiError(told?.code ?? "broken", told?.message ?? `The server answered with status ${reply.status}.`, told?.suggestions ?? []);
  }
  return body;
}

/** The state of one request: { data, error, loading, again }. */
export function useJson(url) {
  const [state, setState] = useState({ loading: true });
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (!url) { setState({ loading: false }); return undefined; }
    const abort = new AbortController();
    setState({ loading: true });
    fetchJson(url, abort.signal)
      .then((data) => setState({ data, url }))
      .catch((error) => { if (error.name !== "AbortError") setState({ error, url }); });
    return () => abort.abort();
  }, [url, round]);
  const again = useCallback(() => setRound((count) => count + 1), []);
  useEffect(() => {
    // What failed because the server was away is asked again once it is back.
    const retry = () => { if (state.error?.code === "offline") again(); };
    addEventListener("ekgn:back", retry);
    return () => removeEventListener("ekgn:back", retry);
  }, [state.error, again]);
  // Until the effect ran, the state still belongs to the page before.
  return state.url === url || state.loading || !url ? { ...state, again } : { loading: true, again };
}

/** What this browser keeps under a name, if it keeps anything. */
export function remembered(name) {
  try { return localStorage.getItem(name) ?? ""; } catch { return ""; /* storage can be switched off */ }
}

export function remember(name, value) {
  try { localStorage.setItem(name, value); } catch { /* storage can be switched off */ }
}

export function useTitle(text) {
  useEffect(() => { document.title = text ? `${text} · ekgn explorer` : "ekgn explorer"; }, [text]);
}

/** Whether something has been true for a moment: no spinner for what takes a blink. */
export function useDelayed(flag, milliseconds = 160) {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (!flag) { setShown(false); return undefined; }
    const timer = setTimeout(() => setShown(true), milliseconds);
    return () => clearTimeout(timer);
  }, [flag]);
  return flag && shown;
}

export function useWidth(fallback = 600) {
  const ref = useRef(null);
  const [width, setWidth] = useState(fallback);
  useEffect(() => {
    if (!ref.current) return undefined;
    const watch = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    watch.observe(ref.current);
    return () => watch.disconnect();
  }, []);
  return [ref, width];
}

/** 0.4567 -> "45.7%"; small shares keep a digit that says something. */
export function percent(share) {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  const value = 100 * share;
  if (value >= 99.95) return "100%";
  if (value >= 9.95) return `${value.toFixed(0)}%`;
  if (value >= 0.095) return `${value.toFixed(1)}%`;
  return value === 0 ? "0%" : "<0.1%";
}

export const count = (value) => Number(value).toLocaleString("en");

/** A relation such as /people/person/place_of_birth in words; ^ marks the inverse. */
export function relationWords(label) {
  const plain = label.replace(/^\^/, "");
  if (!plain.startsWith("/") && !/^[\w]+$/.test(plain)) return plain;
  const parts = plain.split("/").filter((part) => part && part !== ".");
  const last = parts.slice(-2).map((part) => part.replace(/[._]+/g, " ").trim());
  return plain.startsWith("/") && last.length > 1 ? last.join(" › ") : plain.replace(/_/g, " ").trim();
}

/** The same, said of a relation that is asked from its other end. */
export const relationWay = (label) => `${relationWords(label)}${isInverse(label) ? ", backwards" : ""}`;

export const isInverse = (label) => label.startsWith("^");

const KNOWN = { train: "known from training", valid: "held out (validation)", test: "held out (test)" };
/** The mark of a known fact: its colour is never the only sign. */
export const Known = ({ split }) => split
  ? html`<span class=${`known known-${split}`} title=${KNOWN[split] ?? split}>${split === "train" ? "known" : split}</span>`
  : null;

/** A link within the site. */
export function Link({ href, trail, children, ...rest }) {
  const follow = (event) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.button) return;
    event.preventDefault();
    go(href, { trail });
  };
  return html`<a ...${rest} href=${href} onClick=${follow}>${children}</a>`;
}

export const Loading = ({ what = "Loading", shape = "cards" }) => {
  const shown = useDelayed(true);
  return html`<div class=${`loading loading-${shape}`} role="status" aria-live="polite">
    <span class="visually-hidden">${what}…</span>
    ${shown && html`<div class="ghost ghost-line"></div><div class="ghosts">${[1, 2, 3, 4, 5].map((key) => html`<div key=${key} class="ghost"></div>`)}</div>`}
  </div>`;
};

const TITLES = {
  offline: "The server is away", unknown_entity: "That name is not in the graph",
  unknown_relation: "That relation is not in the graph", ambiguous_entity: "Several have that name",
  ambiguous_relation: "Several have that name", unknown_run: "That run is not served here",
  busy: "The server is busy", too_slow: "That took too long", incomplete_question: "Something is missing",
};

const RETRY = ["offline", "busy", "too_slow", "broken", "internal"]; // what another try may mend

/** An error in words, with what to do next; its title is the page's where it stands alone. */
export function Trouble({ error, again, pick, alone = false }) {
  const title = TITLES[error.code] ?? "That did not work";
  return html`<section class="trouble card" role="alert">
    ${alone ? html`<h1 tabindex="-1">${title}</h1>` : html`<h2>${title}</h2>`}
    <p>${error.message.replace(/ Did you mean [^?]*\?$/, "")}</p>
    ${error.suggestions?.length > 0 && pick && html`<p class="small soft">Did you mean</p>
      <ul class="chips">${error.suggestions.map((thing) => html`<li key=${thing.id}><button class="chip" onClick=${() => pick(thing)}>
        <b>${thing.label}</b>${thing.description && html`<span>${thing.description}</span>`}</button></li>`)}</ul>`}
    ${error.code === "offline" && html`<p class="small soft">It is tried again every few seconds; what you asked will then be shown.</p>`}
    ${again && RETRY.includes(error.code) && html`<button onClick=${again}>Try again</button>`}
  </section>`;
}
