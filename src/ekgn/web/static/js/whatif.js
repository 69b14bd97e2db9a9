// What if: take training facts away, add others, and see the answer move.
import { html, useState, useJson, fetchJson, address, Loading, Trouble, percent, runPath, relationWords } from "./lib.js";
import { EntityBox, RelationBox, empty, meant, picked } from "./combobox.js";

const written = (fact) => fact.join(" | ");

export function WhatIf({ run, question, answer }) {
  const [open, setOpen] = useState(false);
  return html`<section class="card what-if" aria-labelledby="what-if"><h2 id="what-if">What if the facts were others?</h2>
    ${open ? html`<${Changes} run=${run} question=${question} answer=${answer} />`
      : html`<p class="small soft">Take away training facts that hold up <b><bdi>${answer.label}</bdi></b>, or add facts, and see it move.</p><p><button onClick=${() => setOpen(true)}>Try it</button></p>`}</section>`;
}

function Changes({ run, question, answer }) {
  const asked = { head: question.head?.id, relation: question.relation.id, tail: question.tail?.id, target: answer.id };
  const { data, error, loading, again } = useJson(`/api${runPath(run, "what-if", asked)}`);
  const [gone, setGone] = useState([]);
  const [added, setAdded] = useState([]);
  const toggle = (fact) => setGone(gone.includes(fact) ? gone.filter((one) => one !== fact) : [...gone, fact]);
  if (loading) return html`<${Loading} what="Fitting without each fact" />`;
  if (error) return html`<${Trouble} error=${error} again=${again} />`;
  const { changes, share, rank, note } = data.what_if;
  return html`<p class="small soft">With all its facts <b><bdi>${answer.label}</bdi></b> has ${percent(share)}, rank ${rank} among all. ${changes.length ? "Take away:" : `No single fact of the ${data.what_if.tried} tried lowers it.`}</p>
    <ul class="changes">${changes.map((change) => html`<li key=${change.words}><label><input type="checkbox" checked=${gone.includes(written(change.facts[0]))} onChange=${() => toggle(written(change.facts[0]))} />
      <bdi>${change.words}</bdi>${change.is_question && html` <span class="soft">(the fact asked for)</span>`}</label>
      <${Moved} from=${share} to=${change.share} rank=${change.rank} /></li>`)}
      ${added.map((fact) => html`<li key=${fact.key}><span><span class="change up">+</span> <bdi>${fact.words}</bdi></span><button class="quiet" onClick=${() => setAdded(added.filter((one) => one !== fact))}>Remove</button></li>`)}</ul>
    <${Add} run=${run} head=${question.head ?? answer} add=${(fact) => setAdded([...added.filter((one) => one.key !== fact.key), fact])} />
    ${(gone.length > 0 || added.length > 0) && html`<${Together} run=${run} asked=${asked} gone=${gone} added=${added} />`}
    <p class="small soft">${note}</p>`;
}

/** A fact to add: of the question's entity or of the answer, from either end. */
function Add({ run, head: start, add }) {
  const [head, setHead] = useState(() => picked(start));
  const [relation, setRelation] = useState(empty);
  const [tail, setTail] = useState(empty);
  const [wrong, setWrong] = useState("");
  const submit = async (event) => {
    event?.preventDefault?.();
    const boxes = [["entities", head, "from"], ["relations", relation, "relation"], ["entities", tail, "to"]];
    const parts = await Promise.all(boxes.map(([kind, value]) => meant(run, kind, value)));
    const blank = boxes.filter((_, place) => !parts[place]).map(([, , name]) => name);
    if (blank.length) { setWrong(`A fact has three parts: fill in ${blank.join(" and ")}.`); return; }
    const known = await Promise.all(boxes.map(([kind, value], place) => value.thing || isKnown(run, kind, parts[place])));
    const bad = boxes.find((_, place) => !known[place]);
    if (bad) { setWrong(`“${bad[1].text}” is no name of one ${bad[0] === "relations" ? "relation" : "thing"} in the graph: pick one from the list.`); return; }
    setWrong("");
    add({ key: written(parts), words: [head.thing?.label ?? parts[0], relationWords(relation.thing?.label ?? parts[1]), tail.thing?.label ?? parts[2]].join(" ") });
    setRelation(empty);
    setTail(empty);
  };
  return html`<form class="add-fact" onSubmit=${submit} aria-label="Add a fact">
    <${EntityBox} id="add-head" label="Add a fact: from" run=${run} value=${head} onChange=${setHead} placeholder="an entity" />
    <${RelationBox} id="add-relation" label="Relation" run=${run} entity=${head.thing?.id} side="head" value=${relation} onChange=${setRelation} placeholder="a relation" />
    <${EntityBox} id="add-tail" label="To" run=${run} value=${tail} onChange=${setTail} onEnter=${submit} placeholder="an entity" />
    <button type="submit">Add</button>${wrong && html`<p class="wrong small" role="alert">${wrong}</p>`}</form>`;
}

/** Whether a name or id is that of one thing. */
async function isKnown(run, kind, text) {
  const { hits } = await fetchJson(address(`/api/runs/${encodeURIComponent(run)}/${kind}`, { q: text, limit: 2 })).catch(() => ({ hits: [] }));
  return hits.some((hit) => hit.id === text) || hits.filter((hit) => hit.match === "exact").length === 1;
}

/** A share before and after: the part that is lost is pale. */
const Moved = ({ from, to, rank }) => html`<span class="moved"><span class="meter" aria-hidden="true"><i class="was" style=${{ width: `${100 * from}%` }}></i><i style=${{ width: `${100 * to}%` }}></i></span>
  <span class="chance">${percent(from)} → <b>${percent(to)}</b>, rank ${rank}</span></span>`;

function Together({ run, asked, gone, added }) {
  const pairs = [...Object.entries(asked).filter(([, value]) => value), ...gone.map((fact) => ["without", fact]), ...added.map((fact) => ["with", fact.key])];
  const { data, error, loading } = useJson(`/api/runs/${encodeURIComponent(run)}/what-if?${new URLSearchParams(pairs)}`);
  const words = [gone.length && `without ${gone.length === 1 ? "it" : `these ${gone.length}`}`, added.length && `with ${added.length === 1 ? "the new fact" : `${added.length} new facts`}`].filter(Boolean).join(" and ");
  return html`<div class="together" aria-live="polite">${loading && "…"}${error && html`<${Trouble} error=${error} />`}
    ${data && html`<span>${words[0].toUpperCase() + words.slice(1)}</span><${Moved} from=${data.what_if.share} to=${data.what_if.changes[0].share} rank=${data.what_if.changes[0].rank} />`}</div>`;
}
