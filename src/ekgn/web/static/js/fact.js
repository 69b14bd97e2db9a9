// A fact that may be missing: how sure the model is of it, why, and what was decided.
import { html, useState, useJson, remembered, sendJson, Loading, Trouble, Known, percent, runPath } from "./lib.js";
import { Path } from "./evidence.js";

export const factParts = (fact) => ({ head: fact.head.id, relation: fact.relation.id, tail: fact.tail.id });
export const factKey = (fact) => Object.values(factParts(fact)).join("\n");

/** Facts as rows of a table. */
export const factRows = (facts) => [["head", "relation", "tail", "head name", "tail name", "confidence", "tail share", "head share", "held out", "verdict"],
  ...facts.map((one) => [one.head.id, one.relation.id, one.tail.id, one.head.label, one.tail.label, one.confidence, one.tail_share, one.head_share, one.held_out, one.verdict])];

/** The confidence, or where there is none the share of the answer, and which of the two it is. */
const sure = (fact) => (fact.confidence === null ? [fact.tail_share ?? fact.share, "share"] : [fact.confidence, "confidence"]);
export const sureWords = (fact) => { const [value, word] = sure(fact); return `${percent(value)} ${word}`; };

export function Sure({ fact, long = false }) {
  const [value, word] = sure(fact);
  return html`<span class="chance">${percent(value)} <span class="soft small">${word}</span>${long && fact.tail_rank !== null && `, place ${fact.tail_rank} of the answers from here, ${fact.head_rank} from the other end`}</span>`;
}

/** The rules and training facts that lead to a fact, or the most similar one. */
export function Evidence({ run, fact }) {
  const { data, error, loading, again } = useJson(`/api${runPath(run, "evidence", factParts(fact))}`);
  return html`<div class="evidence small" aria-live="polite">
    ${loading && html`<${Loading} what="Looking for evidence" />`}
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${data && html`${data.rules.length > 0 && html`<ul class="reasons">${data.rules.map((rule, place) => html`<li key=${place}>${rule.rule}.<${Path} run=${run} facts=${data.paths[place]} goal=${data} /></li>`)}</ul>`}
      ${data.alike && html`<p>${data.alike}.</p>`}
      ${!data.rules.length && !data.alike && html`<p>No rule leads to it, and no other head has this tail.</p>`}
      <p class="soft">${data.confidence !== null && `Confidence ${percent(data.confidence)}. `}Share of the answer ${percent(data.tail_share)} (place ${data.tail_rank}) asked from its head, ${percent(data.head_share)} (place ${data.head_rank}) from its tail.</p>`}</div>`;
}

/** Accept or reject a fact where it stands in a list; the same button again takes it back. A fact of a split has its mark. */
export function Decide({ run, fact }) {
  if (fact.held_out !== "none") return html`<${Known} split=${fact.held_out} />`;
  return html`<${Buttons} run=${run} fact=${fact} />`;
}

function Buttons({ run, fact }) {
  const [verdict, setVerdict] = useState(fact.verdict);
  const [trouble, setTrouble] = useState("");
  const decide = async (wanted) => {
    const next = verdict === wanted ? "undone" : wanted;
    try {
      await sendJson(`/api${runPath(run, "decisions")}`, { ...factParts(fact), verdict: next, who: remembered("ekgn-who").trim() });
      setVerdict(next === "undone" ? null : next);
      setTrouble("");
    } catch (error) { setTrouble(error.message); }
  };
  const button = (wanted, sign, words) => html`<button class="decide" aria-pressed=${verdict === wanted} aria-label=${words} title=${words} onClick=${() => decide(wanted)}>${sign}</button>`;
  return html`<span class="deciding">${button("accepted", "✓", "Accept")}${button("rejected", "✗", "Reject")}${trouble && html`<span class="wrong small" role="alert">${trouble}</span>`}</span>`;
}
