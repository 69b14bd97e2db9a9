// The answer, and every step to it.
import { html, useState, useEffect, useJson, useTitle, remember, remembered, Link, Loading, Trouble, Known, percent, runPath, relationWords, go } from "./lib.js";
import { AskForm, Sentence, questionAddress, questionText } from "./ask.js";
import { BumpChart } from "./charts.js";
import { Stepper, usePlayer } from "./stepper.js";
import { StateMap } from "./statemap.js";
import { Path } from "./evidence.js";
import { WhatIf } from "./whatif.js";
import { Picture, TakeCsv, answerRows } from "./take.js";
import { Trail, extended } from "./trail.js";

const SHOWN = 10; // answers, until more are asked for
const MOVING = 6; // first places of a step whose answers have a line

export function ExplainPage({ run, params, trail }) {
  const asked = { head: params.head, relation: params.relation, tail: params.tail, target: params.target };
  const { data, error, loading, again } = useJson(`/api${runPath(run.name, "explain", { ...asked, readout: params.readout, top: 40 })}`);
  useTitle(data ? questionText(data.question) : "Question");
  const here = data ? extended(trail, questionText(data.question)) : trail;
  const start = data ? { ...data.question, tail: data.question.tail ?? (params.tail && data.explanation.target) } : asked;
  return html`
    <${Trail} trail=${trail} />
    ${loading && html`<h1 tabindex="-1" class="asking"><${AskedWords} asked=${asked} /></h1><${Loading} what="Looking things up" />`}
    ${error && html`<${Trouble} error=${error} again=${again} pick=${(thing) => repair(run.name, asked, error, thing, trail)} alone />`}
    ${data && html`<${Answered} key=${JSON.stringify(data.question)} run=${run} reply=${data} start=${Number(params.step)} trail=${here} />`}
    <${AskForm} run=${run.name} start=${start} trail=${here} />`;
}

const AskedWords = ({ asked }) => html`${asked.head ?? "?"} ${relationWords(asked.relation ?? "?")} ${asked.tail ?? "?"}`;

/** Put a suggestion in the place of the name that was not found. */
function repair(run, asked, error, thing, trail) {
  const isRelation = error.code.endsWith("relation");
  const bad = (part) => asked[part] && error.message.includes(`'${asked[part].slice(0, 60)}`);
  const part = isRelation ? "relation" : ["head", "tail", "target"].find(bad) ?? (asked.head ? "head" : "tail");
  go(questionAddress(run, { ...asked, [part]: thing.id }), { replace: true, trail });
}

/** The step that is shown is a part of the address, though no page of its own. */
function keepStep(at, usual) {
  const url = new URL(location);
  const wanted = at === usual ? null : String(at);
  if (url.searchParams.get("step") === wanted) return;
  if (wanted) url.searchParams.set("step", wanted);
  else url.searchParams.delete("step");
  history.replaceState(history.state, "", url);
}

function Answered({ run, reply, start, trail }) {
  const { explanation, question } = reply;
  const usual = explanation.answering_step;
  const player = usePlayer(explanation.steps.length, explanation.steps[start - 1] ? start : usual);
  useEffect(() => keepStep(player.at, usual), [player.at]);
  const [active, setActive] = useState(null);
  const [hidden, setHidden] = useState(() => remembered("ekgn-hide-known") === "yes");
  const hide = (wanted) => { setHidden(wanted); remember("ekgn-hide-known", wanted ? "yes" : ""); };
  const [all, setAll] = useState(false);
  const [steps, moves, answers] = hidden ? withoutKnown(explanation) : [explanation.steps, reply.moves, explanation.answers];
  const shown = all ? answers : answers.slice(0, SHOWN);
  const best = answers[0] ?? explanation.answers[0];
  const [target, rank] = [explanation.target, explanation.target_rank];
  const about = (id) => runPath(run.name, "entity", { entity: id });
  return html`
    <header class="answer-head">
      <h1 tabindex="-1"><${Sentence} question=${question} /></h1>
      <p class=${`verdict ${reply.untrained.length ? "guess" : ""}`}>
        ${reply.untrained.length > 0 && html`<span class="target wrong">A guess: training has no fact of ${reply.untrained.map((thing) => html`<b key=${thing.id}><bdi>${thing.label}</bdi></b> `)}</span>`}
        <span class="soft">${explanation.answering_step === 1 ? "After one step" : `After ${explanation.answering_step} steps`} it answers</span>
        <${Link} class="best" href=${about(best.id)} trail=${trail}><bdi>${best.label}</bdi><//>
        <span class="chance">${percent(best.share)} <span class="soft small">share</span></span> <${Known} split=${best.known} />
        ${hidden && html`<span class="soft small">known answers left out</span>`}
        ${target && html`<span class="target">You asked about <b><bdi>${target.label}</bdi></b>: ${placed(rank, reply.followed)}</span>`}
      </p>
    </header>
    <section aria-labelledby="steps">
      <div class="section-head"><h2 id="steps">Step by step</h2><span class="small soft keys"><kbd>←</kbd> <kbd>→</kbd> go through the steps</span></div>
      <${Stepper} run=${run} steps=${steps} answering=${usual} themes=${reply.themes} player=${player} active=${active} setActive=${setActive} trail=${trail} />
      <p class="legend small soft"><span class="known known-train">known</span> facts it was trained on
        <span class="known known-valid">valid</span> <span class="known known-test">test</span> facts held out from it · unmarked answers are new
        ${explanation.steps.length > 1 && html`· <span class="change up">▲1</span> <span class="change down">▼1</span> <span class="change up">new</span> since the step before`}</p>
      <p class="small soft why-step">${ruleWords(explanation)}</p>
    </section>
    <div class="two wide-left">
      <div class="stack"><section class="card" aria-labelledby="moves"><h2 id="moves">How the answers change places</h2>
        <${Picture} name=${`places ${questionText(question)}`}><${BumpChart} moves=${moves} steps=${explanation.steps.length} answering=${explanation.answering_step} followed=${target?.id}
          active=${active} setActive=${setActive} onPick=${(move) => go(about(move.id), { trail })} /><//></section>
        <${StateMap} run=${run.name} question=${question} at=${player.at} show=${player.show} trail=${trail} /></div>
      <section class="card" aria-labelledby="reasons"><h2 id="reasons">Why, in words</h2>
        <ul class="reasons">${explanation.evidence.map((one, place) => html`<li key=${`rule ${place}`}>${one.rule}.<${Path} run=${run.name} facts=${reply.paths[place]} goal=${asFact(question, target ?? best)} trail=${trail} /></li>`)}
          ${explanation.reasons.slice(explanation.evidence.length).map((reason, place) => html`<li key=${place}>${reason}</li>`)}</ul></section>
    </div>
    <section class="card" aria-labelledby="answers"><div class="section-head"><h2 id="answers">Its answers <span class="soft small">pick one to ask on</span></h2>
        <span><label class="check small"><input type="checkbox" id="hide-known" checked=${hidden} onChange=${(event) => hide(event.target.checked)} /> hide known answers</label> <${TakeCsv} name=${`answers ${questionText(question)}`} rows=${() => answerRows(answers)} /></span></div>
      ${shown.length ? html`<${Answers} answers=${shown} about=${about} trail=${trail} />
        ${answers.length > shown.length && html`<p class="more"><button onClick=${() => setAll(true)}>Show ${answers.length - shown.length} less likely answers</button></p>`}` : html`<p class="small soft">All of its first ${explanation.answers.length} answers are known.</p>`}
    </section>
    <${WhatIf} run=${run.name} question=${question} answer=${target ?? best} />`;
}

/** The same steps, moves and answers as if no split had any answer: places count only what is left. */
function withoutKnown({ steps, answers, answering_step: answering, target, target_rank: targetRank }) {
  const left = (some, rank) => some.filter((one) => !one.known).map((one, place) => ({ ...one, rank: one.rank > some.length && one.id === target?.id ? Math.ceil(rank) : place + 1 }));
  const some = steps.map((step) => ({ ...step, answers: left(step.answers, step.target_rank) }));
  const moving = some.flatMap((step) => step.answers).filter((one) => one.rank <= MOVING || one.id === target?.id);
  const moves = [...new Map(moving.map((one) => [one.id, one])).values()].map(({ id, label, known }) => {
    const by = some.map((step) => step.answers.find((one) => one.id === id));
    return { id, label, known, ranks: by.map((one) => one?.rank ?? null), shares: by.map((one) => one?.share ?? null) };
  });
  const rank = (move) => move.ranks[answering - 1] ?? Infinity;
  return [some, moves.sort((one, other) => rank(one) - rank(other)), left(answers, targetRank)];
}

/** The question with an answer in its gap. */
const asFact = (question, answer) => ({ head: question.head ?? answer, relation: question.relation, tail: question.tail ?? answer });

const SPLITS = { train: "a training fact", valid: "a validation fact", test: "a test fact" };

/** The place of the answer asked about: other known answers are left out of the count. */
function placed(rank, split) {
  const place = rank === null ? "not ranked" : `rank ${rank % 1 ? rank.toFixed(1) : rank}`;
  return split ? `${SPLITS[split]}, ${place} when other known answers are left out` : `in no split, ${place} when known answers are left out`;
}

/** Why this step is the one that answers. */
function ruleWords(explanation) {
  const [step, last] = [explanation.steps[explanation.answering_step - 1], explanation.steps.length];
  if (last === 1) return "This run has one step: it answers without a lookup.";
  const part = `Each step takes its stop probability of what the steps before it left over; the last step takes all that is left, so it always says stop.`;
  if (explanation.readout === "mixture") return `${part} The answer mixes all steps by what they take.`;
  if (explanation.readout !== "argmax") return `${part} This answer is by the readout ${explanation.readout}.`;
  return `${part} Step ${step.number} takes most, ${percent(step.stop_weight)}, so its answer counts.`;
}

/** Answers with their shares; `there` has their places on the other side of a comparison. */
export function Answers({ answers, about, trail, there }) {
  const most = Math.max(...answers.map((answer) => answer.share), 1e-9);
  return html`<p class="answers-head small soft"><span>place, answer</span><span>share of the answer</span></p><ol class="answers">${answers.map((answer) => html`<li key=${answer.id}>
    <span class="rank">${answer.rank}</span>
    <${Link} href=${about(answer.id)} trail=${trail} title=${answer.description ?? answer.id}><bdi>${answer.label}</bdi><//>
    <span><${Known} split=${answer.known} />${there && html` <span class="small soft">${there.has(answer.id) ? `${there.get(answer.id)} there` : "not there"}</span>`}</span>
    <span class="meter" aria-hidden="true"><i style=${{ width: `${100 * answer.share / most}%` }}></i></span>
    <span class="chance">${percent(answer.share)}</span></li>`)}</ol>`;
}
