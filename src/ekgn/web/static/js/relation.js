// Which relation joins two entities.
import { html, useJson, useTitle, Loading, Trouble, runPath, relationWords, go, Link, Known, percent } from "./lib.js";
import { AskForm, Sentence, questionAddress, questionText } from "./ask.js";
import { TakeCsv, answerRows } from "./take.js";
import { Trail, extended } from "./trail.js";

export function RelationPage({ run, params, trail }) {
  const asked = { head: params.head, relation: params.relation, tail: params.tail };
  const { data, error, loading, again } = useJson(`/api${runPath(run.name, "predict", asked)}`);
  useTitle(data ? questionText(data.question) : "Question");
  const here = data ? extended(trail, questionText(data.question)) : trail;
  const pick = (thing) => {
    const part = ["head", "tail", "relation"].find((name) => asked[name] && error.message.includes(`'${asked[name].slice(0, 60)}`)) ?? "head";
    go(runPath(run.name, "predict", { ...asked, [part]: thing.id }), { replace: true, trail });
  };
  const most = data && Math.max(...data.answers.map((answer) => answer.share), 1e-9);
  const next = (answer) => questionAddress(run.name, data.question.missing === "relation"
    ? { head: data.question.head.id, relation: answer.id, tail: data.question.tail.id }
    : { head: answer.id });
  return html`
    <${Trail} trail=${trail} />
    ${loading && html`<${Loading} what="Comparing relations" />`}
    ${error && html`<${Trouble} error=${error} again=${again} pick=${pick} alone />`}
    ${data && html`<header><h1 tabindex="-1"><${Sentence} question=${data.question} /></h1>
      <p class="lead">How well each relation fits, asked both ways round. Pick one to see the steps.</p></header>
      <section class="card"><p class="takes"><${TakeCsv} name=${`relations ${questionText(data.question)}`} rows=${() => answerRows(data.answers)} /></p><p class="answers-head small soft"><span>place, relation</span><span>share of the answer</span></p><ol class="answers">${data.answers.map((answer) => html`<li key=${answer.id}>
        <span class="rank">${answer.rank}</span>
        <${Link} href=${next(answer)} trail=${here} title=${answer.label}>${relationWords(answer.label)}<//>
        <span><${Known} split=${answer.known} /></span>
        <span class="meter" aria-hidden="true"><i style=${{ width: `${100 * answer.share / most}%` }}></i></span>
        <span class="chance">${percent(answer.share)}</span></li>`)}</ol></section>`}
    <${AskForm} run=${run.name} start=${data ? data.question : asked} trail=${here} />`;
}
