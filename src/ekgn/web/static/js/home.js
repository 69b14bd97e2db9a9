// The first view: what this is, a question to type, and questions to start from.
import { html, useJson, useTitle, Link, Loading, Trouble, percent, count, runPath } from "./lib.js";
import { AskForm, Sentence, questionAddress } from "./ask.js";

const ids = (question) => ({ head: question.head?.id, relation: question.relation?.id, tail: question.tail?.id });

export function Home({ run }) {
  useTitle(run.graph);
  const { data, error, again } = useJson(`/api/runs/${encodeURIComponent(run.name)}`);
  return html`
    <header class="hero">
      <h1 tabindex="-1">Ask ${run.graph} what it does not say</h1>
      <p class="lead">A model has read ${count(run.sizes.train)} facts about ${count(run.sizes.entities)} things.
        Give it a fact with a gap and watch it look things up in its memory, step by step, until it is sure enough to stop.</p>
    </header>
    <${AskForm} run=${run.name} />
    <section aria-labelledby="examples">
      <h2 id="examples">Questions it was never told the answer to</h2>
      ${error && html`<${Trouble} error=${error} again=${again} />`}
      ${!data && !error && html`<${Loading} what="Choosing examples" />`}
      ${data && html`<ul class="examples">${data.examples.map(({ question }) => html`
        <li key=${questionAddress(run.name, ids(question))}><${Link} class="card example" href=${questionAddress(run.name, ids(question))}>
          <${Sentence} question=${question} /><//></li>`)}</ul>`}
    </section>
    <section class="guide" aria-labelledby="guide">
      <h2 id="guide">How to read an answer</h2>
      <ol class="guide-steps">
        <li><b>It goes in steps.</b> The model starts from the two parts you gave and holds them as one state. Play the steps, or go through them with the arrow keys.</li>
        <li><b>It looks into its memory.</b> The rays show which of its ${run.num_slots} memory vectors it reads; the names say what they are mostly used for.</li>
        <li><b>It asks itself whether to stop.</b> The bar is that probability. After at most ${run.max_steps} steps it answers.</li>
        <li><b>You see what it is close to.</b> Observed questions near its state are what the answer leans on.</li>
      </ol>
    </section>
    <${RunFacts} run=${run} />`;
}

const NAMES = { hits_at_10: "of the time among its first ten answers", hits_at_1: "of the time its first answer", mean_rank: "its rank on average" };

function RunFacts({ run }) {
  const shown = Object.keys(NAMES).filter((name) => name in run.metrics);
  if (!shown.length) return null;
  return html`<section class="run-facts" aria-label="How good it is">
    <p class="small soft">On ${run.measured_on === "test" ? "test" : "validation"} facts it never saw, the true answer is</p>
    <dl>${shown.map((name) => html`<div key=${name}><dd>${name === "mean_rank" ? run.metrics[name].toFixed(1) : percent(run.metrics[name])}</dd><dt>${NAMES[name]}</dt></div>`)}</dl>
    <${Link} class="small" href=${runPath(run.name, "metrics")}>All measurements<//>
  </section>`;
}
