// The frame: which page an address means, the way between pages, the server's absence.
import { html, render, useState, useEffect, useJson, fetchJson, Link, Loading, Trouble, address, atHand, go, remember, runPath } from "./lib.js";
import { Home } from "./home.js";
import { EntityPage } from "./entity.js";
import { ExplainPage } from "./explain.js";
import { RelationPage } from "./relation.js";
import { MemoryPage } from "./memory.js";
import { MetricsPage } from "./metrics.js";
import { NeighbourhoodPage } from "./neighbourhood.js";
import { PathsPage } from "./paths.js";
import { CuratePage } from "./curate.js";
import { ComparePage } from "./compare.js";
import { DocsPage } from "./docs.js";
import { questionAddress } from "./ask.js";
import { Take } from "./take.js";
import { focusHeading, restoreScroll, watchScroll } from "./place.js";

const PAGES = {
  kbc: { "": Home, entity: EntityPage, explain: ExplainPage, predict: RelationPage, memory: MemoryPage, neighbourhood: NeighbourhoodPage, curate: CuratePage, compare: ComparePage, metrics: MetricsPage },
  paths: { "": PathsPage, paths: PathsPage, metrics: MetricsPage },
};
const ANY_PAGES = { "": MetricsPage, metrics: MetricsPage }; // of every other task
const TABS = {
  kbc: [["", "Ask"], ["memory", "Memory"], ["neighbourhood", "Neighbourhood"], ["curate", "Missing facts"], ["compare", "Compare"], ["metrics", "Measurements"]],
  paths: [["paths", "Paths"], ["metrics", "Measurements"]],
};
const ANY_TABS = [["", "Measurements"]];

/** What the address says: { run, page, params, trail }. */
function whereabouts() {
  const [, first, run = "", page = ""] = location.pathname.split("/");
  const params = Object.fromEntries(new URLSearchParams(location.search));
  const trail = Array.isArray(history.state?.trail) ? history.state.trail : [];
  return { first, run: decode(run), page, params, trail, url: location.pathname + location.search };
}

function decode(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

function useWhereabouts() {
  const [place, setPlace] = useState(whereabouts);
  useEffect(() => {
    const returned = () => { restoreScroll(); setPlace(whereabouts()); };
    const arrived = () => { restoreScroll(); setPlace(whereabouts()); focusHeading(); };
    const refined = () => setPlace(whereabouts());
    watchScroll();
    const all = { popstate: returned, "ekgn:moved": arrived, "ekgn:refined": refined };
    for (const [name, heard] of Object.entries(all)) addEventListener(name, heard);
    return () => { for (const [name, heard] of Object.entries(all)) removeEventListener(name, heard); };
  }, []);
  return place;
}

/** True while the server does not answer; it is asked every few seconds until it does. */
function useAway() {
  const [away, setAway] = useState(false);
  useEffect(() => {
    const off = () => setAway(true);
    const on = () => setAway((was) => { if (was) setTimeout(() => dispatchEvent(new Event("ekgn:back"))); return false; });
    addEventListener("ekgn:offline", off);
    addEventListener("ekgn:online", on);
    return () => { removeEventListener("ekgn:offline", off); removeEventListener("ekgn:online", on); };
  }, []);
  useEffect(() => {
    if (!away) return undefined;
    const timer = setInterval(() => fetchJson("/healthz").catch(() => {}), 3000);
    return () => clearInterval(timer);
  }, [away]);
  return away;
}

function useShortcut() {
  useEffect(() => {
    const onKey = (event) => {
      if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(input|textarea|select)$/i.test(event.target.tagName)) return;
      const box = document.querySelector("main .combo input");
      if (box) { event.preventDefault(); box.focus(); box.select(); }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  remember("ekgn-theme", root.dataset.theme);
}

/** Where a tab leads: to the same entity or question, if there is one at hand. */
function tabAddress(run, name, { entity, head, relation, tail }) {
  if (run.task !== "kbc") return runPath(run.name, name);
  if (name === "") return questionAddress(run.name, head || tail ? { head, relation, tail } : { head: entity }) ?? runPath(run.name, "", { relation });
  return runPath(run.name, name, atHand({ entity, head, relation, tail }));
}

/** The same page of another run on the same graph; of others the first page: they have other names. */
const sameIn = (other, run, page, params) => (other.graph === run?.graph && other.task === run.task ? runPath(other.name, page, params) : runPath(other.name));

function Top({ runs, run, page, params, first }) {
  const tabs = run ? TABS[run.task] ?? ANY_TABS : [];
  const hand = atHand(params);
  const tab = ["entity", "explain", "predict"].includes(page) ? "" : run?.task === "paths" && page === "" ? "paths" : page;
  return html`<header class="top"><a class="skip" href="#main">To the content</a><div class="top-inner">
    <${Link} class="brand" href=${run ? runPath(run.name, "", run.task === "kbc" ? hand : {}) : "/"}><img src="/static/icon.svg" alt="" width="26" height="26" />ekgn explorer<//>
    ${runs?.length > 1 ? html`<select class="run-choice" aria-label="Run" value=${run?.name ?? ""} onChange=${(event) => go(sameIn(runs.find((one) => one.name === event.target.value), run, page, params))}>
      ${runs.map((one) => html`<option key=${one.name} value=${one.name}>${one.name}</option>`)}</select>` : run && html`<span class="soft small">${run.name}</span>`}
    <nav aria-label="Pages">${tabs.map(([name, words]) => html`<${Link} key=${name} href=${tabAddress(run, name, params)} aria-current=${first === "runs" && tab === name ? "page" : undefined}>${words}<//>`)}
      <${Link} href=${address("/api-docs", run && { run: run.name, ...hand })} aria-current=${first === "api-docs" ? "page" : undefined}>API<//></nav>
    <button class="icon-button" aria-label="Switch between light and dark" title="Light or dark" onClick=${toggleTheme}>
      <svg viewBox="0 0 20 20" fill="none" stroke="currentColor" stroke-width="1.600"><circle cx="10" cy="10" r="7" /><path d="M10 3a7 7 0 0 1 0 14z" fill="currentColor" /></svg></button>
  </div></header>`;
}

const Nowhere = () => html`<section class="trouble card"><h1 tabindex="-1">There is no page here</h1><p>The address may be incomplete.</p><p><${Link} href="/">To the first page<//></p></section>`;

function Content({ runs, place }) {
  if (place.first === "api-docs") return html`<${DocsPage} />`;
  if (place.first !== "runs" && place.first !== "") return html`<${Nowhere} />`;
  const run = place.first === "" ? runs[0] : runs.find((one) => one.name === place.run);
  if (!run) {
    const error = { code: "unknown_run", message: `No run is served as “${place.run}”. These are:`, suggestions: runs.map((one) => ({ id: one.name, label: one.name, description: one.graph })) };
    return html`<${Trouble} error=${error} pick=${(thing) => go(runPath(thing.id))} alone />`;
  }
  const Page = (PAGES[run.task] ?? ANY_PAGES)[place.page];
  return Page ? html`<${Page} key=${`${run.name}/${place.page}`} run=${run} runs=${runs} params=${place.params} trail=${place.trail} />` : html`<${Nowhere} />`;
}

function App() {
  const place = useWhereabouts();
  const { data, error, again } = useJson("/api/runs");
  const away = useAway();
  useShortcut();
  const runs = data?.runs;
  const run = runs && (place.first === "runs" ? runs.find((one) => one.name === place.run) : runs.find((one) => one.name === place.params.run) ?? runs[0]);
  const twin = place.first === "runs" ? `/api${place.url}` : place.first === "api-docs" ? "/api/openapi.json" : "/api/runs";
  return html`
    <${Top} runs=${runs} run=${run} page=${place.page} params=${place.params} first=${place.first === "" ? "runs" : place.first} />
    ${away && html`<p class="away" role="status">The server does not answer. Trying again…</p>`}
    <main id="main" tabindex="-1">
      ${!data && !error && html`<${Loading} what="Opening" />`}
      ${error && html`<${Trouble} error=${error} again=${again} alone />`}
      ${data && html`<${Content} runs=${runs} place=${place} />`}
    </main>
    <footer class="bottom"><${Take} key=${place.url} twin=${twin} /><div><span>ekgn ${data?.version ?? ""}</span><a href=${twin}>This page as JSON</a><${Link} href=${address("/api-docs", run && { run: run.name, ...atHand(place.params) })}>How to ask over HTTP<//></div></footer>`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
