// One entity: what is known of it, what is likely missing, what its kind has and it lacks, its neighbourhood.
import { html, useState, useJson, useTitle, Link, Loading, Trouble, count, percent, runPath, relationWords, go } from "./lib.js";
import { AskForm, questionAddress } from "./ask.js";
import { Decide, Evidence, Sure, factKey, factRows } from "./fact.js";
import { TakeCsv } from "./take.js";
import { Drawing, Key } from "./neighbourhood.js";
import { Trail, extended } from "./trail.js";

const [LIKELY, MOST] = [0.1, 10]; // confidence or share, and number, of the facts shown at first

export function EntityPage({ run, params, trail }) {
  const { data, error, loading, again } = useJson(`/api${runPath(run.name, "entity", { entity: params.entity })}`);
  useTitle(data?.entity.label ?? "Entity");
  const here = data && extended(trail, data.entity.label);
  const pick = (thing) => go(runPath(run.name, "entity", { entity: thing.id }), { replace: true, trail });
  return html`
    <${Trail} trail=${trail} />
    ${loading && html`<${Loading} what="Looking it up" />`}
    ${error && html`<${Trouble} error=${error} again=${again} pick=${pick} alone />`}
    ${data && html`
      <header>
        <h1 tabindex="-1"><bdi>${data.entity.label}</bdi></h1>
        <p class="lead">${data.entity.description || data.entity.id}${" · "}${count(data.facts)} training facts</p>
      </header>
      <div class="two">
        <section class="card" aria-labelledby="known"><div class="section-head"><h2 id="known">Known</h2><${TakeCsv} name=${`known ${data.entity.label}`} rows=${() => [["side", "relation", "id", "name"], ...data.known.flatMap((group) => group.others.map((one) => [group.side, group.relation.id, one.id, one.label]))]} /></div><${KnownFacts} run=${run.name} data=${data} trail=${here} /></section>
        <div class="stack">
          <${Missing} key=${data.entity.id} run=${run.name} entity=${data.entity} trail=${here} />
          <${Gaps} run=${run.name} data=${data} trail=${here} />
        </div>
      </div>
      <${Around} key=${data.entity.id} run=${run.name} entity=${data.entity} trail=${here} />`}
    <${AskForm} run=${run.name} start=${{ head: data?.entity ?? params.entity }} trail=${here} />`;
}

/** A relation of an entity as a question: from its own end. */
const asking = (run, entity, { relation, side }) =>
  questionAddress(run, side === "head" ? { head: entity.id, relation: relation.id } : { relation: relation.id, tail: entity.id });

/** "borders …" of a head, "… borders" of a tail. */
const Way = ({ relation, side }) => html`${side === "tail" && "… "}<i>${relationWords(relation.label)}</i>${side === "head" && " …"}`;

function KnownFacts({ run, data, trail }) {
  if (!data.known.length) return html`<p class="soft small">Training has no fact of it: whatever the model says of it is a guess.</p>`;
  return html`<dl class="known-facts">${data.known.map((group) => html`<div key=${`${group.side} ${group.relation.id}`}>
    <dt class="asks"><${Link} href=${asking(run, data.entity, group)} trail=${trail} title=${group.relation.label}><${Way} ...${group} /><//> <span class="small soft">${count(group.facts)}</span></dt>
    <dd>${group.others.map((thing, place) => html`${place > 0 && ", "}<${Link} key=${thing.id} href=${runPath(run, "entity", { entity: thing.id })} trail=${trail} title=${thing.description || thing.id}><bdi>${thing.label}</bdi><//>`)}
      ${group.facts > group.others.length && html`<span class="soft"> and ${count(group.facts - group.others.length)} more</span>`}</dd></div>`)}</dl>`;
}

function Missing({ run, entity, trail }) {
  const { data, error, loading, again } = useJson(`/api${runPath(run, "missing", { entity: entity.id, most: 20 })}`);
  const [all, setAll] = useState(false);
  const likely = (data?.facts ?? []).filter((fact) => (fact.confidence ?? fact.tail_share) >= LIKELY);
  const shown = all ? data.facts : (likely.length ? likely : data?.facts ?? []).slice(0, MOST);
  return html`<section class="card" aria-labelledby="missing"><div class="section-head"><h2 id="missing">Likely missing</h2>${data?.facts.length > 0 && html`<${TakeCsv} name=${`missing ${entity.label}`} rows=${() => factRows(data.facts)} />`}</div>
    ${loading && html`<${Loading} what="Asking the model" />`}
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${data && !data.facts.length && html`<p class="small soft">Nothing that the model would add.</p>`}
    ${data?.facts.some((fact) => fact.held_out !== "none") && html`<p class="legend small soft"><span class="known known-valid">valid</span> <span class="known known-test">test</span> a split held out from training has the fact</p>`}
    ${data && html`<ul class="links missing">${shown.map((fact) => html`<${MissingFact} key=${factKey(fact)} run=${run} fact=${fact} trail=${trail} />`)}</ul>
      ${shown.length < data.facts.length && html`<p class="more"><button onClick=${() => setAll(true)}>Show ${data.facts.length - shown.length} less likely</button></p>`}`}</section>`;
}

function MissingFact({ run, fact, trail }) {
  const [shown, setShown] = useState(false);
  const steps = questionAddress(run, { head: fact.head.id, relation: fact.relation.id, target: fact.tail.id });
  return html`<li><div class="missing-fact">
      <${Link} href=${steps} trail=${trail}><b><bdi>${fact.head.label}</bdi></b> <i>${relationWords(fact.relation.label)}</i> <b><bdi>${fact.tail.label}</bdi></b><//>
      <span class="missing-side"><${Sure} fact=${fact} /><button class="quiet" aria-expanded=${shown} onClick=${() => setShown(!shown)}>Why</button><${Decide} run=${run} fact=${fact} /></span></div>
    ${shown && html`<${Evidence} run=${run} fact=${fact} />`}</li>`;
}

function Gaps({ run, data, trail }) {
  if (!data.gaps.length) return null;
  return html`<section class="card" aria-labelledby="gaps"><div class="section-head"><h2 id="gaps">It lacks what its kind has</h2><${TakeCsv} name=${`gaps ${data.entity.label}`} rows=${() => [["side", "relation", "name", "share of its kind"], ...data.gaps.map((gap) => [gap.side, gap.relation.id, gap.relation.label, gap.usual])]} /></div>
    <ul class="asks gaps">${data.gaps.map((gap) => html`<li key=${`${gap.side} ${gap.relation.id}`}>
      <${Link} href=${asking(run, data.entity, gap)} trail=${trail}><${Way} ...${gap} /><//><span class="small soft">${percent(gap.usual)} of its kind</span></li>`)}</ul></section>`;
}

function Around({ run, entity, trail }) {
  const { data } = useJson(`/api${runPath(run, "neighbourhood", { entity: entity.id, facts: 24, predicted: 6 })}`);
  if (!data || data.nodes.length < 2) return null;
  return html`<section aria-labelledby="around-it"><div class="section-head"><h2 id="around-it">Around it</h2>
      <${Link} class="small" href=${runPath(run, "neighbourhood", { entity: entity.id })} trail=${trail}>Draw its neighbourhood<//></div>
    <${Drawing} data=${data} visit=${(id) => go(runPath(run, "entity", { entity: id }), { trail })} /><${Key} data=${data} /></section>`;
}
