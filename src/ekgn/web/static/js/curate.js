// The queue: facts that are likely missing, decided one by one, with the keyboard alone if one likes.
import { html, useState, useEffect, useCallback, useRef, useJson, useTitle, remember, remembered, sendJson, Link, Loading, Trouble, Known, percent, count, runPath, relationWords, address, atHand, refine } from "./lib.js";
import { RelationBox, empty, meant, picked } from "./combobox.js";
import { Sentence, questionAddress } from "./ask.js";
import { Evidence, Sure, factKey, factParts, factRows } from "./fact.js";
import { TakeCsv } from "./take.js";

const LEAST = [["", "any confidence"], ["0.25", "from 25%"], ["0.5", "from 50%"], ["0.75", "from 75%"], ["0.9", "from 90%"]];
/** The levels to choose from, the one of the address among them. */
const levels = (least) => (!least || LEAST.some(([value]) => value === least) ? LEAST : [...LEAST, [least, `from ${percent(Number(least))}`]]);
const SORTS = [["", "the surest first"], ["doubtful", "the most doubtful first"], ["relation", "by relation"], ["type", "by type"], ["head", "by name"]];
const KEYS = { a: "accepted", r: "rejected", s: "skip", u: "undo", e: "evidence" };
const SHOWN = 12; // of the facts to come

export function CuratePage({ run, params }) {
  const asked = { relation: params.relation, kind: params.kind, least: params.least, held_out: params.held_out, sort: params.sort };
  const { data, error, loading, again } = useJson(`/api${runPath(run.name, "curate", { ...asked, limit: 100 })}`);
  useTitle("Missing facts");
  // Another relation is another question: of what is at hand the entity is kept.
  const hand = (relation) => (relation === params.relation ? atHand(params) : { entity: atHand(params).entity });
  const visit = (more) => refine(runPath(run.name, "curate", { ...asked, ...hand("relation" in more ? more.relation : params.relation), ...more }));
  return html`
    <header><h1 tabindex="-1">Facts that may be missing</h1>
      <p class="lead">What the model would add. Decide one after the other; what you decide is kept in a file beside the run.</p></header>
    <div class="filters">
      <${RelationFilter} id="curate-relation" label="Relation" run=${run.name} thing=${data?.relation} given=${params.relation} placeholder=${data?.has_file ? "all relations" : "a relation"} choose=${(relation) => visit({ relation })} />
      <${RelationFilter} id="curate-kind" label="Of things that have" run=${run.name} thing=${data?.kind} given=${params.kind} placeholder="anything" choose=${(kind) => visit({ kind })} />
      ${(data?.has_confidence !== false || params.least) && html`<label class="filter">Confidence <select id="curate-least" value=${params.least ?? ""} onChange=${(event) => visit({ least: event.target.value })}>
        ${levels(params.least).map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}</select></label>`}
      <label class="filter">Order <select id="curate-sort" value=${params.sort ?? ""} onChange=${(event) => visit({ sort: event.target.value })}>
        ${SORTS.map(([value, words]) => html`<option key=${value} value=${value}>${words}</option>`)}</select></label>
      <${Who} />
      <label class="check small"><input type="checkbox" id="curate-held-out" checked=${Boolean(params.held_out)} onChange=${(event) => visit({ held_out: event.target.checked ? "true" : "" })} /> also facts held out from training</label>
    </div>
    ${loading && html`<${Loading} what="Asking the model" />`}
    ${error && html`<${Trouble} error=${error} again=${again} pick=${(thing) => visit(error.message.includes(`'${params.kind}`) ? { kind: thing.id } : { relation: thing.id })} />`}
    ${data && !data.has_confidence && html`<p class="small soft no-confidence">This run has no confidences yet, so facts have the share of the answer in place of one${params.least ? html`, and none passes the filter by confidence: <button class="quiet" onClick=${() => visit({ least: "" })}>take it away</button>` : ""}. <code>ekgn complete RUN --out RUN/completed.tsv</code> fits them.</p>`}
    ${data && !data.relation && !data.has_file && html`<${Choose} run=${run.name} />`}
    ${data && (data.relation || data.has_file) && html`<${Queue} key=${JSON.stringify(asked)} run=${run.name} data=${data} again=${again} />`}`;
}

/** A box whose relation is a part of the address. */
function RelationFilter({ id, label, run, thing, given, placeholder, choose }) {
  const [box, setBox] = useState(empty);
  useEffect(() => setBox(thing ? picked(thing, relationWords) : given ? { text: given, thing: null } : empty), [thing?.id, given]); // not when data comes in: somebody may be typing
  const change = (value) => { setBox(value); if (value.thing) choose(value.thing.id); else if (!value.text && given) choose(""); };
  return html`<div class="inline-form"><${RelationBox} id=${id} label=${label} run=${run} value=${box} onChange=${change} placeholder=${placeholder}
    onEnter=${async (value) => choose(await meant(run, "relations", value))} /></div>`;
}

/** Who decides: kept in this browser, and written beside each decision. */
function Who() {
  const [name, setName] = useState(() => remembered("ekgn-who"));
  const keep = (event) => { setName(event.target.value); remember("ekgn-who", event.target.value); };
  return html`<label class="filter">Your name <input id="curate-who" value=${name} maxlength="80" autocomplete="name" placeholder="kept with decisions" onInput=${keep} /></label>`;
}

/** Without a file of the whole graph, a relation must be chosen. */
function Choose({ run }) {
  const { data } = useJson(`/api${runPath(run, "relations", { limit: 24 })}`);
  return html`<section class="card"><h2>Choose a relation</h2>
    <p class="small soft">Or have the queue of the whole graph: <code>ekgn complete RUN --out RUN/completed.tsv</code>, then start the server anew.</p>
    <ul class="chips choices">${(data?.hits ?? []).map((hit) => html`<li key=${hit.id}><${Link} class="chip" href=${runPath(run, "curate", { relation: hit.id })}>
      <b>${relationWords(hit.label)}</b><span>${count(hit.facts)} known</span><//></li>`)}</ul></section>`;
}

function Queue({ run, data, again }) {
  // What is at hand now, read by keys that come faster than the page is drawn; `done` holds { fact, verdict }, the latest last, skipped ones too.
  const hand = useRef({ facts: data.facts, done: [] });
  const sent = useRef(Promise.resolve()); // decisions go out one after the other
  const [, draw] = useState(0);
  const [tally, setTally] = useState(data.tally);
  const [shown, setShown] = useState(false);
  const [trouble, setTrouble] = useState(null);
  const { facts, done } = hand.current;
  const fact = facts[0];

  const act = useCallback((what) => {
    const take = (facts, done) => { hand.current = { facts, done }; draw((drawn) => drawn + 1); };
    const others = (one) => hand.current.facts.filter((other) => other !== one);
    const decide = (entry) => take(entry.verdict === "skip" ? [...others(entry.fact), entry.fact] : others(entry.fact), [...hand.current.done, entry]);
    const takeBack = (entry) => take([entry.fact, ...others(entry.fact)], hand.current.done.filter((other) => other !== entry));
    const send = (entry, verdict, otherwise) => {
      if (entry.verdict === "skip") return;
      setTrouble(null);
      sent.current = sent.current.then(async () => {
        try {
          const reply = await sendJson(`/api${runPath(run, "decisions")}`, { ...factParts(entry.fact), verdict, who: remembered("ekgn-who").trim() });
          setTally(data.relation ? reply.tally : reply.overall);
        } catch (error) { setTrouble(error); otherwise(entry); }
      });
    };
    if (what === "evidence") { setShown((now) => !now); return; }
    const entry = what === "undo" ? hand.current.done.at(-1) : hand.current.facts[0] && { fact: hand.current.facts[0], verdict: what };
    if (!entry) return;
    setShown(false);
    if (what === "undo") { takeBack(entry); send(entry, "undone", decide); }
    else { decide(entry); send(entry, what, takeBack); }
  }, [run, data]);
  useEffect(() => {
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || /^(input|textarea|select)$/i.test(event.target.tagName)) return;
      const what = KEYS[event.key.toLowerCase()];
      if (what) { event.preventDefault(); act(what); }
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [act]);
  const last = done.at(-1);
  const left = data.open - done.filter((entry) => entry.verdict !== "skip").length;
  return html`
    <p class="visually-hidden" role="status">${last ? `${WORDS[last.verdict]}: ${factWords(last.fact)}.` : ""} ${fact ? `Now: ${factWords(fact)}` : "The queue is empty."}</p>
    ${trouble && html`<${Trouble} error=${trouble} />`}
    ${fact ? html`<${Current} key=${factKey(fact)} run=${run} fact=${fact} act=${act} shown=${shown} canUndo=${done.length > 0} />`
      : html`<section class="card curate-now"><p>Nothing is left to decide here.</p>
        <p class="actions"><button onClick=${() => act("undo")} disabled=${!done.length}>Undo <kbd>u</kbd></button> ${left > 0 && html`<button onClick=${again}>More</button>`}</p></section>`}
    <div class="two">
      <section class="card"><h2>So far</h2><${Counted} tally=${tally} data=${data} left=${left} /><${Exports} run=${run} /></section>
      <section class="card"><div class="section-head"><h2>Next</h2>${facts.length > 0 && html`<${TakeCsv} name="queue" rows=${() => factRows(facts)} />`}</div><ol class="coming">${facts.slice(1, 1 + SHOWN).map((one) => html`<li key=${factKey(one)}><span><${Words} fact=${one} /></span><${Sure} fact=${one} /></li>`)}</ol>
        ${facts.length < 2 && html`<p class="small soft">Nothing.</p>`}</section>
    </div>
    <${Decided} key=${JSON.stringify(tally)} run=${run} relation=${data.relation} again=${again} />`;
}

/** What was decided, the latest first, each to be taken back; the queue is asked for anew then. */
function Decided({ run, relation, again }) {
  const { data } = useJson(`/api${runPath(run, "decisions")}`);
  const [trouble, setTrouble] = useState(null);
  const own = (data?.decisions ?? []).map((one, place) => ({ ...one, fact: data.facts[place] })).filter((one) => !relation || one.relation === relation.id).reverse();
  const takeBack = async ({ head, relation, tail }) => {
    try { await sendJson(`/api${runPath(run, "decisions")}`, { head, relation, tail, verdict: "undone", who: remembered("ekgn-who").trim() }); again(); } catch (error) { setTrouble(error); }
  };
  if (!own.length) return null;
  const rows = () => [["head", "relation", "tail", "verdict", "confidence", "who", "when"], ...own.map((one) => [one.head, one.relation, one.tail, one.verdict, one.confidence, one.who, one.when])];
  return html`<section class="card decided" aria-labelledby="decided"><div class="section-head"><h2 id="decided">Decided</h2><${TakeCsv} name="decided" rows=${rows} /></div>
    ${trouble && html`<${Trouble} error=${trouble} />`}
    <ul class="coming">${own.map((one) => html`<li key=${factKey(one.fact)}><span><b class=${`verdict-${one.verdict}`}>${one.verdict}</b> <${Words} fact=${one.fact} />
        <span class="soft small">${one.who && html`by <bdi>${one.who}</bdi> `}${one.when && new Date(one.when).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" })}${one.confidence !== null && `, ${percent(one.confidence)} confidence then`}</span></span>
      <button class="quiet" aria-label=${`Take back: ${factWords(one.fact)}`} onClick=${() => takeBack(one)}>Undo</button></li>`)}</ul></section>`;
}

const WORDS = { accepted: "Accepted", rejected: "Rejected", skip: "Skipped" };
const factWords = (fact) => `${fact.head.label} ${relationWords(fact.relation.label)} ${fact.tail.label}`;
const Words = ({ fact }) => html`<bdi>${fact.head.label}</bdi> <i>${relationWords(fact.relation.label)}</i> <bdi>${fact.tail.label}</bdi>`;

function Current({ run, fact, act, shown, canUndo }) {
  const steps = questionAddress(run, { head: fact.head.id, relation: fact.relation.id, target: fact.tail.id });
  const button = (what, words, key, kind = "") => html`<button class=${kind} data-act=${what} disabled=${what === "undo" && !canUndo} onClick=${() => act(what)} aria-expanded=${what === "evidence" ? shown : undefined}>${words} <kbd>${key}</kbd></button>`;
  return html`<section class="card curate-now" aria-label="The fact to decide about">
    <p class="curate-fact"><${Sentence} question=${fact} /></p>
    <p class="small soft">${[fact.head, fact.tail].filter((thing) => thing.description).map((thing) => html`<span key=${thing.id}><bdi>${thing.label}</bdi>: ${thing.description}. </span>`)}</p>
    <p><${Sure} fact=${fact} long /> ${fact.held_out !== "none" && html`<${Known} split=${fact.held_out} />`}</p>
    <p class="actions">${button("accepted", "Accept", "a", "primary")}${button("rejected", "Reject", "r")}${button("skip", "Skip", "s")}${button("undo", "Undo", "u")}${button("evidence", "Evidence", "e")}
      <${Link} class="small" href=${steps}>every step<//></p>
    ${shown && html`<${Evidence} run=${run} fact=${fact} />`}</section>`;
}

/** What came true of what was promised. */
function Counted({ tally, data, left }) {
  const decided = tally.accepted + tally.rejected;
  return html`<dl class="tally"><div><dt>accepted</dt><dd data-count="accepted">${count(tally.accepted)}</dd></div><div><dt>rejected</dt><dd data-count="rejected">${count(tally.rejected)}</dd></div>
      <div><dt>left</dt><dd data-count="left">${count(left)}</dd></div></dl>
    <p class="small soft">${decided ? html`Precision so far <b data-count="precision">${percent(tally.precision)}</b>${tally.promised === null ? "." : html`; their confidences promised <b data-count="promised">${percent(tally.promised)}</b>.`}` : "Nothing is decided yet."}
      ${data.has_confidence && " A confidence counts facts in no split as false, so the truth can be better."}</p>
    ${data.questions_left_out > 0 && html`<p class="small soft">Of the best-known entities: ${count(data.questions_left_out)} questions more were too many for one visit. A file has them all: <code>ekgn complete RUN --out RUN/completed.tsv</code>.</p>`}`;
}

function Exports({ run }) {
  const file = (verdict, form) => address(`/api/runs/${encodeURIComponent(run)}/decisions/export`, { verdict, form });
  return html`<p class="small">Accepted facts as ${["tsv", "csv", "nt"].map((form, place) => html`${place > 0 && ", "}<a key=${form} href=${file("accepted", form)} download>${form.toUpperCase()}</a>`)};
      rejected ones as <a href=${file("rejected", "tsv")} download>TSV</a>; <a href=${file("all", "csv")} download>all as CSV</a>.</p>
    <p class="small soft">The run takes the accepted ones in without training anew: <code>ekgn extend RUN accepted.tsv</code>. Both teach the confidence: <code>ekgn complete RUN --out RUN/completed.tsv --refit</code> fits it anew with accepted facts as true and rejected ones as false.</p>`;
}
