// The record of a run: how good, how it got there, on what.
import { html, useState, useJson, useTitle, Link, Loading, Trouble, percent, count, runPath, relationWords } from "./lib.js";
import { Curve, ReliabilityChart } from "./charts.js";
import { Sentence, questionAddress } from "./ask.js";
import { TakeCsv } from "./take.js";

const LEADS = {
  kbc: "A held-out fact is hidden and all entities are ranked in its place; facts already known are left out of the ranking, and ties count half.",
  paths: "A path is valid if the hidden graph has all its edges, and correct if it is also the shortest.",
};
const [FIRST, MISSES] = [15, 20]; // rows shown
const NOT_MEASURED = ["step", "epoch", "seconds", "loss", "expected_reward", "learning_rate"];
const CURVES = [
  ["hits_at_10", "Validation hits@10", { share: true }], ["mrr", "Validation MRR", {}],
  ["mean_rank", "Validation mean rank", { best: "min" }], ["correct", "Correct validation paths", { share: true }],
  ["valid", "Valid validation paths", { share: true }], ["loss", "Training loss", { best: "min" }],
];

export function MetricsPage({ run }) {
  const { data, error, loading, again } = useJson(`/api${runPath(run.name, "metrics")}`);
  useTitle("Measurements");
  return html`
    <header><h1 tabindex="-1">How good it is</h1>
      <p class="lead">${LEADS[run.task]}</p></header>
    ${loading && html`<${Loading} what="Reading the record" />`}
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${data && html`<${Headline} data=${data} />
      ${data.curve.length > 0 && html`<section aria-labelledby="curves"><h2 id="curves">The training</h2><div class="curves">
        ${curves(data.curve[0]).map(([name, title, options]) => html`<${Curve} key=${name} title=${title} ...${options}
          markAt=${data.summary.best?.step} points=${data.curve.map((line) => [line.epoch ?? line.step, line[name], line.step])} />`)}</div></section>`}
      ${run.task === "kbc" && html`<${Evaluations} data=${data} /><${Categories} data=${data} /><${Results} run=${run} /><${Reliability} run=${run.name} found=${data.confidence} />`}
      ${run.task === "paths" && Object.keys(data.evaluations).length > 0 && html`<${PathEvaluations} data=${data} />`}
      <div class="two"><${Facts} title="On what" pairs=${flat({ ...data.data, source: undefined, ...data.summary })} more=${sources(data.data.source)} />
        <${Facts} title="Where and with what" pairs=${flat(data.environment)} /></div>
      <${Facts} title="What was changed" pairs=${flat({ preset: data.preset ?? undefined, ...data.overrides })} columns=${true} />
      <${Facts} title="Settings" pairs=${flat(data.settings)} columns=${true} />`}`;
}

/** The curves there are: the known ones, then what else a task measures. */
function curves(line) {
  const known = CURVES.filter(([name]) => name in line);
  const others = Object.keys(line).filter((name) => !NOT_MEASURED.includes(name) && !known.some(([one]) => one === name));
  return [...others.map((name) => [name, `Validation ${name.replace(/_/g, " ")}`, {}]), ...known];
}

const NAMES = { hits_at_10: "hits@10", hits_at_3: "hits@3", hits_at_1: "hits@1", mrr: "MRR", mean_rank: "mean rank", correct: "correct", valid: "valid", adjusted_mean_rank_index: "AMRI" };
const say = (name, value) => (value === undefined || value === null ? "–" : name === "mean_rank" ? value.toFixed(1) : ["mrr", "adjusted_mean_rank_index"].includes(name) ? value.toFixed(3) : percent(value));

function Headline({ data }) {
  const names = Object.keys(data.run.metrics);
  if (!names.length) return html`<p class="soft">Nothing has been measured yet.</p>`;
  return html`<section class="headline" aria-label="Headline"><p class="small soft">${data.run.measured_on === "test" ? "On the test split" : "Best on the validation split; the test split has not been evaluated"}</p>
    <dl>${names.map((name) => html`<div class="card" key=${name}><dd>${say(name, data.run.metrics[name])}</dd><dt>${NAMES[name] ?? name}</dt></div>`)}</dl></section>`;
}

const COLUMNS = ["hits_at_10", "hits_at_3", "hits_at_1", "mrr", "mean_rank", "adjusted_mean_rank_index"];

function Evaluations({ data }) {
  const rows = Object.entries(data.evaluations).map(([name, found]) => [name.replace("/", ", readout "), found.micro]);
  Object.entries(data.with_rules).forEach(([split, found]) => rows.push([`${split}, with rules`, found.micro]));
  Object.entries(data.rule_baseline).forEach(([split, found]) => rows.push([`${split}, rules of one fact alone`, found.micro]));
  if (!rows.length) return null;
  return html`<section class="card scroll" tabindex="0" aria-labelledby="evaluations"><div class="section-head"><h2 id="evaluations">Evaluations</h2><${TakeCsv} name="Evaluations" /></div><table>
    <thead><tr><th scope="col">split</th>${COLUMNS.map((name) => html`<th scope="col" key=${name}>${NAMES[name]}</th>`)}</tr></thead>
    <tbody>${rows.map(([name, found]) => html`<tr key=${name}><th scope="row">${name}</th>${COLUMNS.map((column) => html`<td key=${column}>${say(column, found?.[column])}</td>`)}</tr>`)}</tbody></table></section>`;
}

function Categories({ data }) {
  const found = Object.values(data.evaluations).find((one) => one.split === "test") ?? Object.values(data.evaluations)[0];
  if (!found?.categories) return null;
  return html`<section class="card scroll" tabindex="0" aria-labelledby="categories"><div class="section-head"><h2 id="categories">By kind of relation</h2><${TakeCsv} name="By kind of relation" /></div><table>
    <thead><tr><th scope="col">kind</th><th scope="col">facts</th><th scope="col">hits@10, head missing</th><th scope="col">hits@10, tail missing</th></tr></thead>
    <tbody>${Object.entries(found.categories).map(([kind, sides]) => html`<tr key=${kind}><th scope="row">${kind}</th><td>${count(sides.tail?.count ?? 0)}</td><td>${percent(sides.head?.hits_at_10)}</td><td>${percent(sides.tail?.hits_at_10)}</td></tr>`)}</tbody></table></section>`;
}

/** Of facts with some confidence, how many are true. */
function Reliability({ run, found }) {
  if (!found.reliability) return html`<section class="card" aria-labelledby="reliability"><h2 id="reliability">How far confidences hold</h2><p class="small soft">No confidence is fitted yet: <code>ekgn complete RUN --out facts.tsv</code> fits one and checks it.</p></section>`;
  const error = found.calibration_error;
  return html`<section class="card" aria-labelledby="reliability"><div class="section-head"><h2 id="reliability">How far confidences hold</h2><${TakeCsv} name="reliability" /></div>
    <p class="small soft">Calibration error ${error.after.toFixed(3)}, of the share ${error.before.toFixed(3)}. Under the assumption that ${found.assumption}.</p>
    <div class="two"><${ReliabilityChart} rows=${found.reliability} /><div class="scroll" tabindex="0" role="group" aria-label="Reliability as a table"><table>
    <thead><tr><th scope="col">confidence from</th><th scope="col">candidates</th><th scope="col">mean confidence</th><th scope="col">true</th></tr></thead>
    <tbody>${found.reliability.map((row) => html`<tr key=${row.from}><th scope="row"><${Link} href=${runPath(run, "curate", { least: row.from, held_out: "true" })}>${percent(row.from)}<//></th><td>${count(row.candidates)}</td><td>${percent(row.confidence)}</td><td>${percent(row.true)}</td></tr>`)}</tbody></table></div></div></section>`;
}

/** Held-out facts ranked now: by relation, and the worst misses; every row leads to its steps. */
function Results({ run }) {
  const split = run.sizes.test ? "test" : "valid";
  const { data, error, loading, again } = useJson(run.sizes[split] ? `/api${runPath(run.name, "results", { split })}` : null);
  const [all, setAll] = useState(false);
  if (!run.sizes[split]) return null;
  const steps = (miss) => questionAddress(run.name, { head: miss.question.head?.id, relation: miss.question.relation.id, tail: miss.question.tail?.id, target: miss.answer.id });
  const rank = (value) => (value % 1 ? value.toFixed(1) : count(value));
  const shown = all ? data?.relations : data?.relations.slice(0, FIRST);
  return html`
    <section class="card scroll" tabindex="0" aria-labelledby="by-relation"><div class="section-head"><h2 id="by-relation">By relation</h2>${data && html`<${TakeCsv} name="by relation" rows=${() => [["relation", "name", "facts", "hits@10", "hits@1", "MRR", "mean rank", "worst rank"], ...data.relations.map((row) => [row.relation.id, row.relation.label, row.facts, row.hits_at_10, row.hits_at_1, row.mrr, row.mean_rank, row.worst.rank])]} />`}</div>
      ${loading && html`<${Loading} what="Ranking held-out facts" />`}
      ${error && html`<${Trouble} error=${error} again=${again} />`}
      ${data && html`<p class="small soft">${data.facts < data.of ? `${count(data.facts)} of ${count(data.of)} ${split} facts, drawn at random` : `All ${count(data.of)} ${split} facts`}, asked from either end; facts that are known are left out of the ranking.</p><table class="results">
        <thead><tr>${["relation", "facts", "hits@10", "hits@1", "MRR", "mean rank", "worst miss"].map((name) => html`<th scope="col" key=${name}>${name}</th>`)}</tr></thead>
        <tbody>${shown.map((row) => html`<tr key=${row.relation.id}><th scope="row">${relationWords(row.relation.label)}</th><td>${count(row.facts)}</td><td>${percent(row.hits_at_10)}</td><td>${percent(row.hits_at_1)}</td><td>${row.mrr.toFixed(3)}</td><td>${row.mean_rank.toFixed(1)}</td>
          <td><${Link} href=${steps(row.worst)}>rank ${rank(row.worst.rank)}<//></td></tr>`)}</tbody></table>
        ${data.relations.length > FIRST && !all && html`<p class="more"><button onClick=${() => setAll(true)}>Show all ${data.relations.length}</button></p>`}`}</section>
    ${data?.misses.length > 0 && html`<section class="card scroll" tabindex="0" aria-labelledby="misses"><div class="section-head"><h2 id="misses">Worst misses</h2><${TakeCsv} name="worst misses" /></div><table class="misses">
      <thead><tr><th scope="col">question</th><th scope="col">true answer</th><th scope="col">rank</th><th scope="col">said instead</th></tr></thead>
      <tbody>${data.misses.slice(0, MISSES).map((miss, place) => html`<tr key=${place}><th scope="row"><${Link} href=${steps(miss)}><${Sentence} question=${miss.question} /><//></th><td><bdi>${miss.answer.label}</bdi></td><td>${rank(miss.rank)}</td><td><bdi>${miss.said.label}</bdi></td></tr>`)}</tbody></table></section>`}`;
}

function PathEvaluations({ data }) {
  return html`<section class="card scroll" tabindex="0" aria-labelledby="evaluations"><div class="section-head"><h2 id="evaluations">Evaluations</h2><${TakeCsv} name="Evaluations" /></div><table>
    <thead><tr><th scope="col">split and decoding</th><th scope="col">paths</th><th scope="col">correct</th><th scope="col">valid</th></tr></thead>
    <tbody>${Object.entries(data.evaluations).filter(([, found]) => found.all).map(([name, found]) => html`<tr key=${name}><th scope="row">${name}</th><td>${count(found.all.total)}</td>
      <td>${percent(found.all.correct / found.all.total)}</td><td>${percent(found.all.valid / found.all.total)}</td></tr>`)}</tbody></table></section>`;
}

/** Nested values as "a.b" → text. */
function flat(value, prefix = "") {
  return Object.entries(value ?? {}).flatMap(([name, one]) => (one !== null && typeof one === "object" && !Array.isArray(one)
    ? flat(one, `${prefix}${name}.`)
    : one === undefined ? [] : [[prefix + name, Array.isArray(one) ? one.map((item) => (item && typeof item === "object" ? Object.values(item).join(" ") : item)).join(", ") : one]]));
}

const plain = (value) => (value === null ? "–" : typeof value === "boolean" ? (value ? "yes" : "no")
  : typeof value === "number" ? (Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(5)))) : String(value));

/** Where the data came from: files with their checksums, and counts that are not zero. */
function sources(source) {
  const files = [...(source?.files ?? []), ...(source?.names ?? [])].map((file) => [file.name, `sha256 ${file.sha256.slice(0, 16)}…`]);
  return [...files, ...flat({ ...source, files: null, names: null }).filter(([, value]) => value)];
}

function Facts({ title, pairs, columns = false, more = [] }) {
  if (!pairs.length) return null;
  return html`<section class="card"><h2>${title}</h2><dl class=${`facts ${columns ? "facts-columns" : ""}`}>${pairs.map(([name, value]) => html`
    <div key=${name}><dt>${name.replace(/_/g, " ")}</dt><dd>${plain(value)}</dd></div>`)}</dl>
    ${more.length > 0 && html`<details><summary class="small soft">Files and checks</summary><dl class="facts">${more.map(([name, value]) => html`<div key=${name}><dt>${name.replace(/_/g, " ")}</dt><dd>${plain(value)}</dd></div>`)}</dl></details>`}</section>`;
}
