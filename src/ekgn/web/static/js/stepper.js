// The steps as one moving picture: play, pause, scrub; what changed since the step before is marked.
import { html, useState, useEffect, Link, Known, percent, runPath, relationWords, isInverse } from "./lib.js";
import { AttentionStrip } from "./charts.js";

const PACE = 1800; // milliseconds that a step is shown while it plays
const SHOWN = 6; // answers

/** The step that is shown, and whether it plays. */
export function usePlayer(count, start) {
  const [at, setAt] = useState(start);
  const [playing, setPlaying] = useState(false);
  useEffect(() => {
    if (!playing) return undefined;
    const timer = setTimeout(() => (at < count ? setAt(at + 1) : setPlaying(false)), PACE);
    return () => clearTimeout(timer);
  }, [playing, at, count]);
  const show = (step) => { setPlaying(false); setAt(Math.max(1, Math.min(count, step))); };
  const toggle = () => { if (!playing && at === count) setAt(1); setPlaying(!playing); };
  return { at, playing, show, toggle };
}

export function Stepper({ run, steps, answering, themes, player, active, setActive, trail }) {
  const { at, playing, show, toggle } = player;
  const [step, before] = [steps[at - 1], steps[at - 2]];
  const onKey = (event) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 1, End: steps.length }[event.key];
    if (to === undefined || event.target.closest(".strip")) return;
    event.preventDefault();
    show(to);
    event.currentTarget.querySelector(`[data-step="${Math.max(1, Math.min(steps.length, to))}"] button`)?.focus();
  };
  return html`<div class="stepper" onKeyDown=${onKey}>
    <div class="scrub"><button class="play" onClick=${toggle} aria-pressed=${playing}>${playing ? "Pause" : "Play"}</button>
      <ol class="steps" aria-label="Steps">${steps.map((one) => html`<${StepTab} key=${one.number} step=${one} shown=${one.number === at} answers=${one.number === answering} show=${show} />`)}</ol></div>
    <p class="visually-hidden" role="status">${changeWords(step, before)}</p>
    <div class="stage card" data-shown=${at}>
      <div><h3>What it thinks</h3><${Tops} run=${run} step=${step} before=${before} active=${active} setActive=${setActive} trail=${trail} /></div>
      <${Looks} steps=${steps} at=${at} themes=${themes} />
      <div><h3>Nearest questions it has seen</h3>
        <ul class="pairs">${step.nearest.map((pair) => html`<li key=${pairKey(pair)}><${Pair} pair=${pair} isNew=${before && !before.nearest.some((other) => pairKey(other) === pairKey(pair))} /></li>`)}</ul></div>
    </div></div>`;
}

/** What the state reads on its way to the next step; the last one reads no more, so it shows what it came from. */
function Looks({ steps, at, themes }) {
  const reads = steps[at - 1].attention_all.length > 0;
  const reader = reads ? at : at - 1;
  const [step, before] = [steps[reader - 1], steps[reader - 2]];
  if (!step?.attention_all.length) return html`<div class="looks"><h3>It looks nowhere</h3><p class="small soft">It answers from its first state.</p></div>`;
  return html`<div class="looks" data-reader=${reader}><h3>${reads ? "Where it looks in memory" : `What step ${reader} read in memory`}</h3>
    <${Reading} key=${at} step=${step} />
    <${AttentionStrip} weights=${step.attention_all} themes=${themes} strongest=${step.attention} before=${before?.attention_all} />
    ${!reads && html`<p class="small soft">This made the state of step ${at}, the last: it looks no further.</p>`}</div>`;
}

const pairKey = (pair) => `${pair.head.id}\n${pair.relation}`;

/** One step in the row: its number, its stop bar, its first answer. Pressing and dragging scrubs. */
function StepTab({ step, shown, answers, show }) {
  const best = step.answers[0];
  const scrub = (event) => { if (event.buttons === 1) show(step.number); };
  return html`<li class=${`step ${answers ? "step-answers" : ""} ${shown ? "step-shown" : ""}`} data-step=${step.number}>
    <button aria-pressed=${shown} onClick=${() => show(step.number)} onPointerEnter=${scrub}>
      <span class="step-title"><b class="step-name">Step ${step.number}</b>${answers && html`<span class="flag">answers here</span>`}</span>
      <span class="bar" aria-hidden="true"><i style=${{ width: `${100 * step.stop_probability}%` }}></i></span>
      <span class="small step-stop">stop <b>${percent(step.stop_probability)}</b> <span class="soft">takes ${percent(step.stop_weight)} of all</span></span>
      <span class="small step-best">${best ? html`<bdi>${best.label}</bdi> ${percent(best.share)}` : "all known"}</span></button></li>`;
}

/** How an answer moved since the step before. */
function Moved({ now, before }) {
  if (!before) return null;
  const was = before.answers.find((answer) => answer.id === now.id)?.rank;
  if (was === now.rank) return html`<span class="change"></span>`;
  if (was === undefined) return html`<span class="change up" title="not among these at the step before">new</span>`;
  return html`<span class=${`change ${was > now.rank ? "up" : "down"}`} title=${`was ${was} at the step before`}>${was > now.rank ? "▲" : "▼"}${Math.abs(was - now.rank)}</span>`;
}

function Tops({ run, step, before, active, setActive, trail }) {
  const shown = step.answers.slice(0, SHOWN);
  const top = Math.max(shown[0]?.share ?? 0, 1e-9);
  if (!shown.length) return html`<p class="small soft">All that it thinks of is known.</p>`;
  return html`<ol class="tops">${shown.map((answer) => html`<li key=${answer.id}
    class=${active === answer.id ? "active" : ""} onMouseEnter=${() => setActive(answer.id)} onMouseLeave=${() => setActive(null)}>
    <span class="rank">${answer.rank}</span>
    <${Link} href=${runPath(run.name, "entity", { entity: answer.id })} trail=${trail}><bdi>${answer.label}</bdi><//><${Known} split=${answer.known} /><${Moved} now=${answer} before=${before} />
    <span class="chance">${percent(answer.share)}</span><span class="meter" aria-hidden="true"><i style=${{ width: `${100 * answer.share / top}%` }}></i></span></li>`)}</ol>`;
}

/** The state over the strip of memory vectors, a ray to each that it reads. */
function Reading({ step }) {
  const size = step.attention_all.length;
  const [wide, high] = [300, 64];
  const rays = step.attention.filter((one) => one.weight > 0.03).slice(0, 8);
  const x = (slot) => ((slot + 0.5) / size) * wide;
  return html`<svg class="reading-rays" viewBox=${`0 0 ${wide} ${high}`} preserveAspectRatio="none" aria-hidden="true">
    ${rays.map((one) => html`<path key=${one.slot} pathLength="1" d=${`M${wide / 2} 9 C${wide / 2} ${high * 0.6} ${x(one.slot)} ${high * 0.4} ${x(one.slot)} ${high}`} stroke-width=${(1 + 7 * one.weight).toFixed(2)} />`)}
    <ellipse cx=${wide / 2} cy="9" rx="7" ry="7" /></svg>`;
}

/** An observed pair as the small question it is, with the answers training knows. */
function Pair({ pair, isNew }) {
  const relation = html`<i title=${pair.relation.replace(/^\^/, "")}>${relationWords(pair.relation)}</i>`;
  const head = html`<b title=${pair.head.description || pair.head.id}><bdi>${pair.head.label}</bdi></b>`;
  const names = pair.answers.slice(0, 2).map((name, place) => html`${place > 0 && ", "}<bdi key=${name.id}>${name.label}</bdi>`);
  const more = pair.answer_count - Math.min(2, pair.answers.length);
  return html`<span class=${pair.holds_answer ? "pair holds" : "pair"} title=${`at ${Math.round(100 * pair.far)}% of the distance of two typical questions`}>
    ${isInverse(pair.relation) ? html`? ${relation} ${head}` : html`${head} ${relation} ?`}${isNew && html` <span class="change up">new</span>`}
    <span class="pair-answers">${names}${more > 0 && html` +${more}`}${pair.holds_answer && html` <em>holds the answer</em>`}</span></span>`;
}

function changeWords(step, before) {
  const best = step.answers[0];
  if (!best) return `Step ${step.number}: all that it thinks of is known.`;
  const was = before?.answers[0] && before.answers[0].id !== best.id ? `, before it was ${before.answers[0].label}` : "";
  return `Step ${step.number}: ${best.label} ${percent(best.share)}${was}. Stop probability ${percent(step.stop_probability)}.`;
}
