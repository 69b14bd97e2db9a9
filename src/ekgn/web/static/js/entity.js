// One entity: what can be asked about it.
import { html, useJson, useTitle, Link, Loading, Trouble, count, runPath, relationWords, go } from "./lib.js";
import { AskForm, questionAddress } from "./ask.js";
import { Trail, extended } from "./trail.js";

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
        <${Asks} title=${`${data.entity.label} … what?`} hits=${data.as_head} trail=${here}
          address=${(hit) => questionAddress(run.name, { head: data.entity.id, relation: hit.id })} />
        <${Asks} title=${`What … ${data.entity.label}?`} hits=${data.as_tail} trail=${here}
          address=${(hit) => questionAddress(run.name, { relation: hit.id, tail: data.entity.id })} />
      </div>
      <p><${Link} href=${runPath(run.name, "neighbourhood", { entity: data.entity.id })}>Draw its neighbourhood<//></p>`}
    <${AskForm} run=${run.name} start=${{ head: data?.entity ?? params.entity }} trail=${here} />`;
}

function Asks({ title, hits, address, trail }) {
  return html`<section class="card"><h2>${title}</h2>
    ${hits.length ? html`<ul class="asks">${hits.map((hit) => html`<li key=${hit.id}>
      <${Link} href=${address(hit)} trail=${trail} title=${hit.label}>${relationWords(hit.label)}<//>
      <span class="small soft">${count(hit.facts)} known</span></li>`)}</ul>`
    : html`<p class="soft small">No training fact this way round. You can still ask below.</p>`}
  </section>`;
}
