// Two questions, or one question asked of two runs, side by side.
import { html, useState, useJson, useTitle, Link, Loading, Trouble, Known, percent, runPath, go } from "./lib.js";
import { AskForm, Sentence, questionAddress, questionText } from "./ask.js";
import { BumpChart } from "./charts.js";
import { Answers } from "./explain.js";
import { Picture, TakeCsv, answerRows } from "./take.js";

export function ComparePage({ run, runs, params }) {
  const parts = (prefix) => ({ head: params[`${prefix}head`], relation: params[`${prefix}relation`], tail: params[`${prefix}tail`] });
  const [first, own] = [parts(""), parts("other_")];
  const second = Object.values(own).some(Boolean) ? own : first;
  const ready = first.relation && (first.head || first.tail);
  const { data, error, loading, again } = useJson(ready ? `/api${runPath(run.name, "compare", params)}` : null);
  useTitle("Side by side");
  const choices = runs.filter((one) => one.task === "kbc");
  const visit = (name, one, other, two) => go(runPath(name, "compare", { entity: one.head ?? one.tail ?? params.entity, ...one, other: other === name ? "" : other, other_head: two.head, other_relation: two.relation, other_tail: two.tail }));
  const other = params.other || run.name;
  const alike = other === run.name && ["head", "relation", "tail"].every((part) => (second[part] ?? "") === (first[part] ?? ""));
  const side = (place) => data?.sides[place];
  return html`
    <header><h1 tabindex="-1">Side by side</h1>
      <p class="lead">Two questions, or one question asked of two runs: what each answers, and how its answers change places.</p>
      <p class="small soft compare-how">${!ready ? `Fill in a relation and one entity on the left. The right side asks the same until you fill it in${choices.length > 1 ? " or choose another run for it" : ""}.`
        : alike ? `Both sides ask the same. Fill in another question on the right${choices.length > 1 ? ", or choose another run there" : ""}.` : "“There” is an answer's place on the other side."}</p></header>
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    <div class="two compare">
      <${Side} id="left" run=${run.name} choices=${choices} asked=${first} side=${side(0)} there=${side(1)} loading=${loading && ready}
        choose=${(name) => visit(name, first, other, second)} ask=${(one) => visit(run.name, one, other, own.relation ? own : second.relation ? second : {})} />
      <${Side} id="right" run=${other} choices=${choices} asked=${second} side=${side(1)} there=${side(0)} loading=${loading && ready}
        choose=${(name) => visit(run.name, first, name, own)} ask=${(one) => visit(run.name, ready ? first : one, other, one)} />
    </div>`;
}

/** What was asked, with names in place of ids once they are known. */
const known = (asked, side) => (side ? { head: side.reply.question.head, relation: side.reply.question.relation, tail: side.reply.question.tail ?? (asked.tail && side.reply.explanation.target) } : asked);

function Side({ id, run, choices, asked, side, there, loading, choose, ask }) {
  return html`<section class="card side" aria-label=${`The ${id} side`}>
    ${choices.length > 1 && html`<label class="filter">Run <select id=${`${id}-run`} value=${run} onChange=${(event) => choose(event.target.value)}>${choices.map((one) => html`<option key=${one.name} value=${one.name}>${one.name}</option>`)}</select></label>`}
    <${AskForm} id=${id} run=${run} start=${known(asked, side)} onAsk=${ask} />
    ${loading && html`<${Loading} what="Asking" />`}
    ${side && html`<${Found} run=${run} reply=${side.reply} there=${there.reply} />`}</section>`;
}

function Found({ run, reply, there }) {
  const { question, explanation } = reply;
  const [active, setActive] = useState(null);
  const best = explanation.answers[0];
  const about = (id) => runPath(run, "entity", { entity: id });
  const steps = questionAddress(run, { head: question.head?.id, relation: question.relation.id, tail: question.tail?.id, target: explanation.target?.id });
  const places = new Map(there.explanation.answers.map((answer) => [answer.id, answer.rank]));
  return html`<h2><${Sentence} question=${question} /></h2>
    <p class="verdict"><span class="soft">step ${explanation.answering_step} of ${explanation.steps.length}:</span> <${Link} class="best" href=${about(best.id)}><bdi>${best.label}</bdi><//> <span class="chance">${percent(best.share)} <span class="soft small">share</span></span> <${Known} split=${best.known} />
      <${Link} class="small" href=${steps}>every step<//></p>
    <p class="takes"><${TakeCsv} name=${`answers ${questionText(question)}`} rows=${() => answerRows(explanation.answers)} /></p>
    <${Answers} answers=${explanation.answers} about=${about} there=${places} />
    <${Picture} name=${`places ${questionText(question)}`}><${BumpChart} moves=${reply.moves} steps=${explanation.steps.length} answering=${explanation.answering_step} followed=${explanation.target?.id} active=${active} setActive=${setActive} onPick=${(move) => go(about(move.id))} /><//>`;
}
