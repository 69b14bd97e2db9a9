// The states in a plane: some observed questions as dots, and the way of this one through its steps.
import { html, useState, useJson, useWidth, Loading, Trouble, percent, runPath, relationWords, isInverse, go } from "./lib.js";
import { questionAddress, questionText } from "./ask.js";
import { Picture } from "./take.js";

const PAD = 34; // pixels beside the drawing

export function StateMap({ run, question, at, show, trail }) {
  const asked = { head: question.head?.id, relation: question.relation.id, tail: question.tail?.id };
  const { data, error, loading, again } = useJson(`/api${runPath(run, "states", asked)}`);
  return html`<section class="card" aria-labelledby="state-map"><h2 id="state-map">Its way among other questions</h2>
    ${loading && html`<${Loading} what="Drawing the map" />`}
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${data && html`<${Plane} run=${run} data=${data} at=${at} show=${show} trail=${trail} />`}</section>`;
}

function Plane({ run, data, at, show, trail }) {
  const [ref, width] = useWidth(700);
  const [held, setHeld] = useState(null); // the dot that is read
  const height = Math.round(Math.max(260, Math.min(460, width * 0.5)));
  const { x, y } = scales(data, width, height);
  const own = data.question.relation.label;
  const isShown = (point) => point.near <= 1 || point.near === at; // first states, and the nearest now
  const visit = (point) => go(questionAddress(run, isInverse(point.relation)
    ? { relation: point.relation.slice(1), tail: point.head.id } : { head: point.head.id, relation: point.relation }), { trail });
  const onKey = (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Enter" && held !== null) visit(data.points[held]);
    if (!way) return;
    event.preventDefault();
    const from = held === null ? data.path[at - 1] : [data.points[held].x, data.points[held].y];
    const next = onward(data.points, isShown, held, [x(from[0]), y(from[1])], way, (point) => [x(point.x), y(point.y)]);
    if (next !== null) setHeld(next);
  };
  const locate = (event) => {
    const frame = event.currentTarget.getBoundingClientRect();
    const [px, py] = [event.clientX - frame.left, event.clientY - frame.top];
    const [near, distance] = data.points.reduce((best, point, place) => { const d = Math.hypot(x(point.x) - px, y(point.y) - py); return isShown(point) && d < best[1] ? [place, d] : best; }, [null, Infinity]);
    setHeld(distance < 24 ? near : null);
  };
  const line = data.path.map(([px, py], place) => `${place ? "L" : "M"}${x(px).toFixed(1)} ${y(py).toFixed(1)}`).join("");
  const read = held === null ? null : data.points[held];
  return html`<div class="plane" ref=${ref}><${Picture} name=${`way ${questionText(data.question)}`}>
    <svg width=${width} height=${height} tabindex="0" role="group" aria-label=${`The state at each of ${data.path.length} steps among ${data.points.length} observed questions; arrow keys go from dot to dot, Enter asks one`}
      onKeyDown=${onKey} onMouseMove=${locate} onMouseLeave=${() => setHeld(null)} onClick=${() => read && visit(read)} class=${read ? "pointed" : ""}>
      <line class="grid" x1=${PAD} x2=${width - 8} y1=${height - 24} y2=${height - 24} /><line class="grid" x1=${PAD} x2=${PAD} y1="8" y2=${height - 24} />
      <text class="axis" x=${width - 8} y=${height - 8} text-anchor="end">${width > 500 ? "first direction, " : ""}${percent(data.variance[0])} of the variance →</text>
      <text class="axis" transform=${`translate(16 ${height - 28}) rotate(-90)`}>${width > 500 ? "second, " : ""}${percent(data.variance[1])} →</text>
      ${data.points.map((point, place) => isShown(point) && html`<circle key=${place} class=${`seen ${point.near === at ? "near" : point.relation === own ? "same" : ""}`} cx=${x(point.x)} cy=${y(point.y)} r=${point.near === at ? 5.5 : 3} />`)}
      <path class="way" d=${line} />
      ${data.path.map(([px, py], place) => html`<g key=${place} class=${`stop-${place + 1 === at ? "now" : "other"}`} onClick=${(event) => { event.stopPropagation(); show(place + 1); }}>
        <circle cx=${x(px)} cy=${y(py)} r="10" /><text x=${x(px)} y=${y(py) + 4} text-anchor="middle">${place + 1}</text></g>`)}
      ${read && html`<circle class="held" cx=${x(read.x)} cy=${y(read.y)} r="7" />`}
    </svg><//>
    <p class="small plane-read" aria-live="polite">${read ? html`<b><${Observed} point=${read} /></b>${read.near > 0 && ` · among the nearest at step ${read.near}`}` : html`<span class="soft">Point at a dot, or focus the map and use the arrow keys, to read which observed question it is; click or Enter asks it.</span>`}</p>
    <p class="legend small soft"><span class="dot-key way"></span> this question, by step <span class="dot-key near"></span> nearest at step ${at} <span class="dot-key same"></span> same relation <span class="dot-key"></span> others</p>
    <p class="small soft">The plane in which the states of observed questions differ most; what is far apart in other directions can look near.</p></div>`;
}

const Observed = ({ point }) => (isInverse(point.relation)
  ? html`? ${relationWords(point.relation)} <bdi>${point.head.label}</bdi>` : html`<bdi>${point.head.label}</bdi> ${relationWords(point.relation)} ?`);

function scales(data, width, height) {
  const xs = [...data.points.map((point) => point.x), ...data.path.map(([one]) => one)];
  const ys = [...data.points.map((point) => point.y), ...data.path.map(([, one]) => one)];
  const scale = (values, from, to) => { const [low, high] = [Math.min(...values), Math.max(...values)]; return (value) => from + ((value - low) / (high - low || 1)) * (to - from); };
  return { x: scale(xs, PAD + 14, width - 22), y: scale(ys, height - 40, 18) };
}

/** The nearest dot from a place in some direction. */
function onward(points, isShown, held, [fromX, fromY], [wayX, wayY], locate) {
  let [best, least] = [null, Infinity];
  points.forEach((point, place) => {
    if (!isShown(point)) return;
    const [px, py] = locate(point);
    const [along, aside] = [(px - fromX) * wayX + (py - fromY) * wayY, Math.abs((px - fromX) * wayY - (py - fromY) * wayX)];
    if (place !== held && along > 0.5 && aside <= along * 1.5 && along + 2 * aside < least) [best, least] = [place, along + 2 * aside];
  });
  return best;
}
