// The answer, and every step to it.
import { html, useState, useEffect, useJson, useTitle, Link, Loading, Trouble, Known, percent, runPath, relationWords, isInverse, go } from "./lib.js";
import { AskForm, Sentence, questionAddress, questionText } from "./ask.js";
import { AttentionStrip, BumpChart } from "./charts.js";
import { WhatIf } from "./whatif.js";
import { Trail, extended } from "./trail.js";

export function ExplainPage({ run, params, trail }) {
  const asked = { head: params.head, relation: params.relation, tail: params.tail, target: params.target };
  const { data, error, loading, again } = useJson(`/api${runPath(run.name, "explain", { ...asked, rule: params.rule, top: 10 })}`);
  useTitle(data ? questionText(data.question) : "Question");
  const here = data ? extended(trail, questionText(data.question)) : trail;
  const start = data ? { ...data.question, tail: data.question.tail ?? (params.tail && data.explanation.target) } : asked;
  return html`
    <${Trail} trail=${trail} />
    ${loading && html`<h1 tabindex="-1" class="asking"><${AskedWords} asked=${asked} /></h1><${Loading} what="Looking things up" />`}
    ${error && html`<${Trouble} error=${error} again=${again} pick=${(thing) => repair(run.name, asked, error, thing, trail)} alone />`}
    ${data && html`<${Answered} key=${JSON.stringify(data.question)} run=${run} reply=${data} trail=${here} />`}
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

function Answered({ run, reply, trail }) {
  const { explanation, question } = reply;
  const [round, setRound] = useState(0);
  const [active, setActive] = useState(null);
  const best = explanation.answers[0];
  const [target, rank] = [explanation.target, explanation.target_rank];
  const about = (id) => runPath(run.name, "entity", { entity: id });
  return html`
    <header class="answer-head">
      <h1 tabindex="-1"><${Sentence} question=${question} /></h1>
      <p class=${`verdict ${reply.untrained.length ? "guess" : ""}`}>
        ${reply.untrained.length > 0 && html`<span class="target wrong">A guess: training has no fact of ${reply.untrained.map((thing) => html`<b key=${thing.id}><bdi>${thing.label}</bdi></b> `)}</span>`}
        <span class="soft">${explanation.answering_step === 1 ? "After one step" : `After ${explanation.answering_step} steps`} it answers</span>
        <${Link} class="best" href=${about(best.id)} trail=${trail}><bdi>${best.label}</bdi><//>
        <span class="chance">${percent(best.share)}</span> <${Known} split=${best.known} />
        ${target && html`<span class="target">You asked about <b><bdi>${target.label}</bdi></b>: ${placed(rank, reply.followed)}</span>`}
      </p>
    </header>
    <section aria-labelledby="steps">
      <div class="section-head"><h2 id="steps">Step by step</h2>
        <button class="quiet" onClick=${() => setRound(round + 1)}>Play again</button></div>
      <ol class="steps" key=${round} tabindex="0" aria-label="Steps, from left to right">
        ${explanation.steps.map((step) => html`<${StepCard} key=${step.number} run=${run} step=${step} themes=${reply.themes} trail=${trail}
          answers=${step.number === explanation.answering_step} active=${active} setActive=${setActive} />`)}
      </ol>
      <p class="legend small soft"><span class="known known-train">known</span> facts it was trained on
        <span class="known known-valid">valid</span> <span class="known known-test">test</span> facts held out from it · unmarked answers are new</p>
      <p class="small soft why-step">${ruleWords(explanation)}</p>
    </section>
    <div class="two wide-left">
      <section class="card" aria-labelledby="moves"><h2 id="moves">How the answers change places</h2>
        <${BumpChart} moves=${reply.moves} steps=${explanation.steps.length} answering=${explanation.answering_step} followed=${target?.id}
          active=${active} setActive=${setActive} onPick=${(move) => go(about(move.id), { trail })} /></section>
      <section class="card" aria-labelledby="reasons"><h2 id="reasons">Why, in words</h2>
        <ul class="reasons">${explanation.reasons.map((reason, place) => html`<li key=${place}>${reason}</li>`)}</ul></section>
    </div>
    <section class="card" aria-labelledby="answers"><h2 id="answers">Its answers <span class="soft small">pick one to ask on</span></h2>
      <${Answers} answers=${explanation.answers} about=${about} trail=${trail} />
    </section>
    <${WhatIf} run=${run.name} question=${question} answer=${target ?? best} />`;
}

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
  if (explanation.rule === "mixture") return `${part} The answer mixes all steps by what they take.`;
  if (explanation.rule !== "argmax") return `${part} This answer is by the rule ${explanation.rule}.`;
  return `${part} Step ${step.number} takes most, ${percent(step.stop_weight)}, so its answer counts.`;
}

export function Answers({ answers, about, trail }) {
  const most = Math.max(...answers.map((answer) => answer.share), 1e-9);
  return html`<ol class="answers">${answers.map((answer) => html`<li key=${answer.id}>
    <span class="rank">${answer.rank}</span>
    <${Link} href=${about(answer.id)} trail=${trail} title=${answer.description ?? answer.id}><bdi>${answer.label}</bdi><//>
    <span><${Known} split=${answer.known} /></span>
    <span class="meter" aria-hidden="true"><i style=${{ width: `${100 * answer.share / most}%` }}></i></span>
    <span class="chance">${percent(answer.share)}</span></li>`)}</ol>`;
}

function StepCard({ run, step, themes, answers, active, setActive, trail }) {
  const [shown, setShown] = useState(false);
  useEffect(() => { const timer = setTimeout(() => setShown(true), 30); return () => clearTimeout(timer); }, []);
  const delay = { animationDelay: `${(step.number - 1) * 260}ms` };
  const grow = { width: shown ? `${100 * step.stop_probability}%` : "0%", transitionDelay: `${(step.number - 1) * 260 + 150}ms` };
  return html`<li class=${`step card ${answers ? "step-answers" : ""}`} style=${delay} data-step=${step.number}>
    <div class="step-title"><h2>Step ${step.number}</h2>${answers && html`<span class="flag">answers here</span>`}</div>
    <div class="stop"><h3>Stop now?</h3>
      <div class="bar" role="img" aria-label=${`Stop probability ${percent(step.stop_probability)}`}><i style=${grow}></i></div>
      <p class="small"><b>${percent(step.stop_probability)}</b> <span class="soft">takes ${percent(step.stop_weight)} of all</span></p>
    </div>
    <div><h3>What it thinks</h3>
      <ol class="tops">${step.answers.slice(0, 5).map((answer) => html`<li key=${answer.id}
        class=${active === answer.id ? "active" : ""} onMouseEnter=${() => setActive(answer.id)} onMouseLeave=${() => setActive(null)}>
        <${Link} href=${runPath(run.name, "entity", { entity: answer.id })} trail=${trail}><bdi>${answer.label}</bdi><//><${Known} split=${answer.known} />
        <span class="chance">${percent(answer.share)}</span></li>`)}</ol>
    </div>
    <div class="looks"><h3>${step.attention_all.length ? "Where it looks in memory" : "It looks no further"}</h3>
      ${step.attention_all.length > 0 && html`<${AttentionStrip} weights=${step.attention_all} themes=${themes} strongest=${step.attention} />`}
    </div>
    <div><h3>Nearest pairs it has seen</h3>
      <ul class="pairs">${step.nearest.map((pair, place) => html`<li key=${place}><${Pair} pair=${pair} /></li>`)}</ul>
    </div>
  </li>`;
}

/** An observed pair as the small question it is, with the answers training knows. */
function Pair({ pair }) {
  const relation = html`<i title=${pair.relation.replace(/^\^/, "")}>${relationWords(pair.relation)}</i>`;
  const head = html`<b title=${pair.head.description || pair.head.id}><bdi>${pair.head.label}</bdi></b>`;
  const names = pair.answers.slice(0, 2).map((name, place) => html`${place > 0 && ", "}<bdi key=${name.id}>${name.label}</bdi>`);
  const more = pair.answer_count - Math.min(2, pair.answers.length);
  return html`<span class=${pair.holds_answer ? "pair holds" : "pair"} title=${`L2 distance ${pair.distance.toFixed(3)}`}>
    ${isInverse(pair.relation) ? html`? ${relation} ${head}` : html`${head} ${relation} ?`}
    <span class="pair-answers">${names}${more > 0 && html` +${more}`}${pair.holds_answer && html` <em>holds the answer</em>`}</span></span>`;
}
