// The shortest-path task: a sphere to turn, and the path that each step would answer.
import { html, useState, useEffect, useRef, useJson, useTitle, useWidth, Loading, Trouble, Link, percent, runPath, go } from "./lib.js";
import { Picture } from "./take.js";

const words = (route) => route.nodes.map((one) => one.node).join(" → ");

export function PathsPage({ run, params }) {
  const url = `/api${runPath(run.name, "paths", { start: params.start, end: params.end })}`;
  const { data, error, loading, again } = useJson(url);
  const [step, setStep] = useState(null);
  const [ends, setEnds] = useState(["", ""]);
  useTitle(params.start ? `Path from ${params.start} to ${params.end}` : "Shortest paths");
  useEffect(() => { setEnds([params.start ?? "", params.end ?? ""]); setStep(null); }, [params.start, params.end]);
  const explanation = data?.explanation;
  const shown = explanation && (explanation.steps.find((one) => one.step === step) ?? explanation.steps[explanation.answered_at - 1]);
  const ask = (event) => { event.preventDefault(); go(runPath(run.name, "paths", { start: ends[0], end: ends[1] })); };
  const box = (place, label) => html`<div class="combo"><label for=${`node-${place}`}>${label}</label><input id=${`node-${place}`} inputmode="numeric" pattern="[0-9]*" required
    value=${ends[place]} onInput=${(event) => setEnds(place ? [ends[0], event.target.value] : [event.target.value, ends[1]])} /></div>`;
  return html`
    <header><h1 tabindex="-1">${explanation ? html`From ${explanation.start} to ${explanation.end}` : "Shortest paths on a sphere"}</h1>
      <p class="lead">The same network, another task: it has seen ${run.sizes.train.toLocaleString("en")} shortest paths between ${run.sizes.nodes} points,
        never the points, edges or lengths themselves, and writes the way between two of them.</p></header>
    <form class="ask card" onSubmit=${ask} aria-label="Ask for a path"><div class="ask-row short">${box(0, "From node")}<span class="ask-arrow" aria-hidden="true">→</span>${box(1, "To node")}<button class="primary">Find the way</button></div></form>
    ${data && html`<nav aria-label="Example pairs"><ul class="chips">${data.examples.map((pair) => html`<li key=${`${pair.start}-${pair.end}`}>
      <${Link} class="chip" aria-current=${String(pair.start) === params.start && String(pair.end) === params.end ? "true" : undefined} href=${runPath(run.name, "paths", { start: pair.start, end: pair.end })}>${pair.start} → ${pair.end}<//></li>`)}</ul></nav>`}
    ${loading && html`<${Loading} what="Finding the way" />`}
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${data && html`<div class="sphere-row">
      <${Sphere} points=${data.points} shortest=${explanation?.shortest} route=${shown?.route} />
      ${explanation && html`<div class="sphere-steps"><p class="small soft">Shortest: <b>${words(explanation.shortest)}</b>, cost ${explanation.shortest.cost.toFixed(3)}</p>
        <ol class="path-steps">${explanation.steps.map((one) => html`<li key=${one.step}><button class=${`card path-step ${shown === one ? "marked" : ""}`} aria-pressed=${shown === one} onClick=${() => setStep(one.step)}>
          <span class="step-title"><b>Step ${one.step}</b>${one.step === explanation.answered_at && html`<span class="flag">answers here</span>`}</span>
          <span class="bar" role="img" aria-label=${`Stop probability ${percent(one.stop_probability)}`}><i style=${{ width: `${100 * one.stop_probability}%` }}></i></span>
          <span class="small soft">stop ${percent(one.stop_probability)} · sure ${percent(one.probability)}</span>
          <span class="small">${words(one.route)}</span>
          <span class=${`small verdict-${one.route.correct ? "good" : one.route.cost === null ? "bad" : "so"}`}>${one.route.correct ? `shortest, cost ${one.route.cost.toFixed(3)}` : one.route.cost === null ? `no edge ${one.route.missing.map((hop) => hop.join(" → ")).join(", ")}` : `connected, cost ${one.route.cost.toFixed(3)}`}</span>
        </button></li>`)}</ol>
        <p class="legend small soft"><span class="edge-key gold"></span> shortest <span class="edge-key accent"></span> predicted <span class="edge-key accent broken"></span> no such edge</p></div>`}
    </div>`}`;
}

/** Turned so that the middle of the path faces the viewer; drag or arrow keys turn it further. */
function Sphere({ points, shortest, route }) {
  const [ref, width] = useWidth(480);
  const canvas = useRef(null);
  const [turn, setTurn] = useState({ yaw: 0, pitch: 0 });
  const drag = useRef(null);
  const size = Math.min(560, Math.max(260, width));
  useEffect(() => { if (shortest) setTurn(facing(shortest.nodes)); }, [shortest]);
  useEffect(() => {
    const draw = () => canvas.current && paint(canvas.current, size, points, turn, shortest, route);
    draw();
    const watch = new MutationObserver(draw);
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => watch.disconnect();
  }, [points, turn, shortest, route, size]);
  const move = (event) => {
    if (!drag.current) return;
    const [x, y, from] = drag.current;
    setTurn({ yaw: from.yaw + (event.clientX - x) / 150, pitch: Math.max(-1.5, Math.min(1.5, from.pitch + (event.clientY - y) / 150)) });
  };
  const onKey = (event) => {
    const by = { ArrowLeft: [-0.2, 0], ArrowRight: [0.2, 0], ArrowUp: [0, -0.2], ArrowDown: [0, 0.2] }[event.key];
    if (!by) return;
    event.preventDefault();
    setTurn((now) => ({ yaw: now.yaw + by[0], pitch: Math.max(-1.5, Math.min(1.5, now.pitch + by[1])) }));
  };
  return html`<div class="sphere" ref=${ref}><${Picture} name="sphere" isCanvas=${true}><canvas ref=${canvas} tabindex="0" role="img" aria-label=${`A sphere with ${points.length} points${route ? `; the predicted path is ${words(route)}` : ""}. Arrow keys turn it.`}
    onPointerDown=${(event) => { event.currentTarget.setPointerCapture(event.pointerId); drag.current = [event.clientX, event.clientY, turn]; }}
    onPointerMove=${move} onPointerUp=${() => { drag.current = null; }} onPointerCancel=${() => { drag.current = null; }} onKeyDown=${onKey}></canvas><//></div>`;
}

function facing(nodes) {
  const sum = nodes.reduce((total, one) => [total[0] + one.x, total[1] + one.y, total[2] + one.z], [0, 0, 0]);
  const length = Math.hypot(...sum) || 1;
  return { yaw: -Math.atan2(sum[0], sum[2]), pitch: Math.asin(sum[1] / length) };
}

/** x to the right, y up, z towards the viewer. */
function turned([x, y, z], { yaw, pitch }) {
  const [x1, z1] = [x * Math.cos(yaw) + z * Math.sin(yaw), -x * Math.sin(yaw) + z * Math.cos(yaw)];
  return [x1, y * Math.cos(pitch) - z1 * Math.sin(pitch), y * Math.sin(pitch) + z1 * Math.cos(pitch)];
}

function paint(canvas, size, points, turn, shortest, route) {
  const scale = devicePixelRatio || 1;
  canvas.width = size * scale;
  canvas.height = size * scale;
  canvas.style.width = `${size}px`;
  canvas.style.height = `${size}px`;
  const context = canvas.getContext("2d");
  const colours = getComputedStyle(document.documentElement);
  const colour = (name) => colours.getPropertyValue(name).trim();
  context.scale(scale, scale);
  context.translate(size / 2, size / 2);
  const radius = size / 2 - 16;
  const at = (point) => { const [x, y, z] = turned(point, turn); return [x * radius, -y * radius, z]; };
  context.beginPath();
  context.arc(0, 0, radius, 0, 2 * Math.PI);
  context.fillStyle = colour("--card");
  context.fill();
  context.strokeStyle = colour("--line-strong");
  context.stroke();
  context.fillStyle = colour("--soft");
  points.map(at).sort((a, b) => a[2] - b[2]).forEach(([x, y, z]) => {
    context.globalAlpha = z > 0 ? 0.35 + 0.4 * z : 0.12;
    context.beginPath();
    context.arc(x, y, z > 0 ? 2.6 : 1.8, 0, 2 * Math.PI);
    context.fill();
  });
  context.globalAlpha = 1;
  if (shortest) drawRoute(context, shortest, at, colour("--gold"), 7, 0.35);
  if (route) drawRoute(context, route, at, colour("--accent"), 2.4, 1);
  if (shortest) drawNames(context, route ?? shortest, at, colour);
}

function drawRoute(context, route, at, colour, width, alpha) {
  context.strokeStyle = colour;
  context.lineWidth = width;
  context.lineCap = "round";
  route.nodes.slice(1).forEach((to, place) => {
    const from = route.nodes[place];
    const missing = route.missing.some(([a, b]) => a === from.node && b === to.node);
    const line = Array.from({ length: 25 }, (_, part) => between(from, to, part / 24)).map(at);
    context.setLineDash(missing ? [5, 7] : []);
    context.globalAlpha = alpha * (line[12][2] < 0 ? 0.35 : 1);
    context.beginPath();
    line.forEach(([x, y], part) => context[part ? "lineTo" : "moveTo"](x, y));
    context.stroke();
  });
  context.setLineDash([]);
  context.globalAlpha = 1;
}

/** A point of the great circle between two nodes. */
function between(from, to, part) {
  const mixed = ["x", "y", "z"].map((axis) => from[axis] * (1 - part) + to[axis] * part);
  const length = Math.hypot(...mixed) || 1;
  return mixed.map((value) => value / length);
}

function drawNames(context, route, at, colour) {
  context.font = "600 12px system-ui, sans-serif";
  route.nodes.forEach((one, place) => {
    const [x, y] = at([one.x, one.y, one.z]);
    const isEnd = place === 0 || place === route.nodes.length - 1;
    context.beginPath();
    context.arc(x, y, isEnd ? 6.500 : 4.500, 0, 2 * Math.PI);
    context.fillStyle = colour(isEnd ? "--ink" : "--accent");
    context.fill();
    context.lineWidth = 3;
    context.strokeStyle = colour("--card");
    context.strokeText(String(one.node), x + 9, y - 7);
    context.fillStyle = colour("--ink");
    context.fillText(String(one.node), x + 9, y - 7);
  });
}
