// What if: take training facts away, and see the answer move.
import { html, useState, useJson, Loading, Trouble, percent, runPath } from "./lib.js";

const written = (fact) => fact.join(" | ");

export function WhatIf({ run, question, answer }) {
  const [open, setOpen] = useState(false);
  return html`<section class="card what-if" aria-labelledby="what-if"><h2 id="what-if">What if a fact were not there?</h2>
    ${open ? html`<${Changes} run=${run} question=${question} answer=${answer} />`
      : html`<p class="small soft">The training facts that hold up <b><bdi>${answer.label}</bdi></b>, taken away one at a time.</p><p><button onClick=${() => setOpen(true)}>Try it</button></p>`}</section>`;
}

function Changes({ run, question, answer }) {
  const asked = { head: question.head?.id, relation: question.relation.id, tail: question.tail?.id, target: answer.id };
  const { data, error, loading, again } = useJson(`/api${runPath(run, "what-if", asked)}`);
  const [gone, setGone] = useState([]);
  const toggle = (fact) => setGone(gone.includes(fact) ? gone.filter((one) => one !== fact) : [...gone, fact]);
  if (loading) return html`<${Loading} what="Fitting without each fact" />`;
  if (error) return html`<${Trouble} error=${error} again=${again} />`;
  const { changes, share, rank, note } = data.what_if;
  if (!changes.length) return html`<p class="small soft">No single fact of the ${data.what_if.tried} tried lowers it from ${percent(share)}.</p>`;
  return html`<p class="small soft">With all its facts <b><bdi>${answer.label}</bdi></b> has ${percent(share)}, rank ${rank} among all. Take away:</p>
    <ul class="changes">${changes.map((change) => html`<li key=${change.words}><label><input type="checkbox" checked=${gone.includes(written(change.facts[0]))} onChange=${() => toggle(written(change.facts[0]))} />
      <bdi>${change.words}</bdi>${change.is_question && html` <span class="soft">(the fact asked for)</span>`}</label>
      <${Moved} from=${share} to=${change.share} rank=${change.rank} /></li>`)}</ul>
    ${gone.length > 0 && html`<${Together} run=${run} asked=${asked} gone=${gone} />`}
    <p class="small soft">${note}</p>`;
}

/** A share before and after: the part that is lost is pale. */
const Moved = ({ from, to, rank }) => html`<span class="moved"><span class="meter" aria-hidden="true"><i class="was" style=${{ width: `${100 * from}%` }}></i><i style=${{ width: `${100 * to}%` }}></i></span>
  <span class="chance">${percent(from)} → <b>${percent(to)}</b>, rank ${rank}</span></span>`;

function Together({ run, asked, gone }) {
  const pairs = [...Object.entries(asked).filter(([, value]) => value), ...gone.map((fact) => ["without", fact])];
  const { data, error, loading } = useJson(`/api/runs/${encodeURIComponent(run)}/what-if?${new URLSearchParams(pairs)}`);
  return html`<div class="together" aria-live="polite">${loading && "…"}${error && html`<${Trouble} error=${error} />`}
    ${data && html`<span>Without ${gone.length === 1 ? "it" : `these ${gone.length}`}</span><${Moved} from=${data.what_if.share} to=${data.what_if.changes[0].share} rank=${data.what_if.changes[0].rank} />`}</div>`;
}
