// Pictures drawn by hand: the attention strip, the bump chart, the curves.
import { html, useState, percent, useWidth } from "./lib.js";
import { Picture } from "./take.js";

const DIFFERENT = 0.02; // of the attention, from which a change is worth a mark

/** Memory vectors from left to right, darker where the lookup went, a tick where it went more than at the step before; arrows move the reading mark. */
export function AttentionStrip({ weights, themes, strongest, before = [] }) {
  const [at, setAt] = useState(null);
  const size = weights.length;
  const most = Math.max(...weights, 1e-9);
  const locate = (event) => {
    const frame = event.currentTarget.getBoundingClientRect();
    setAt(Math.max(0, Math.min(size - 1, Math.floor(size * (event.clientX - frame.left) / frame.width))));
  };
  const onKey = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    setAt((now) => Math.max(0, Math.min(size - 1, (now ?? strongest[0]?.slot ?? 0) + step)));
  };
  const read = at === null ? null : { slot: at, weight: weights[at], theme: themes[at] };
  const gained = (slot) => (before.length ? weights[slot] - before[slot] : 0);
  const changed = (slot) => Math.abs(gained(slot)) >= DIFFERENT && html` <span class=${`change ${gained(slot) > 0 ? "up" : "down"}`} title="percent points since the step before">${gained(slot) > 0 ? "+" : "−"}${Math.round(100 * Math.abs(gained(slot)))}</span>`;
  const line = (one) => html`<span class="slot">${one.slot}</span> ${one.theme ?? ""} <b>${percent(one.weight)}</b>${changed(one.slot)}`;
  return html`<div class="strip"><${Picture} name="attention">
    <svg viewBox=${`0 0 ${size} 10`} preserveAspectRatio="none" tabindex="0" role="img"
      aria-label=${`Attention over ${size} memory vectors; most on ${strongest.slice(0, 3).map((one) => `${one.theme} (${percent(one.weight)})`).join(", ")}`}
      onMouseMove=${locate} onMouseLeave=${() => setAt(null)} onKeyDown=${onKey} onBlur=${() => setAt(null)}>
      <rect class="strip-ground" width=${size} height="10" />
      ${weights.map((weight, slot) => html`<rect key=${slot} x=${slot} width="1" height="10" class="strip-cell" fill-opacity=${Math.sqrt(weight / most).toFixed(3)} />`)}
      ${weights.map((_, slot) => gained(slot) >= DIFFERENT && html`<rect key=${`gain ${slot}`} class="strip-gain" x=${slot} width="1" height="2" />`)}
      ${at !== null && html`<rect class="strip-mark" x=${at} width="1" height="10" />`}
    </svg><//>
    <ul class="strip-read small" aria-live="polite">${read
      ? html`<li class="reading">${line(read)}</li>`
      : strongest.filter((one, place) => place < 3 && (place === 0 || one.weight > 0.05)).map((one) => html`<li key=${one.slot}>${line(one)}</li>`)}</ul>
  </div>`;
}

const HUES = ["var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)", "var(--c5)", "var(--c6)"];

/** Ranks by step as lines; answers outside the shown ranks rest on the lowest line, the one followed with its rank. */
export function BumpChart({ moves, steps, answering, followed, active, setActive, onPick }) {
  const [ref, width] = useWidth(560);
  const rows = Math.min(8, Math.max(3, moves.length));
  const [left, right, top, gap] = [16, Math.min(190, Math.max(120, width * 0.34)), 30, 30];
  const height = top + gap * rows + 22;
  const x = (step) => (steps === 1 ? left : left + (step * (width - left - right)) / (steps - 1));
  const y = (rank) => top + gap * (Math.min(rank ?? rows + 1, rows + 1) - 1);
  const last = steps - 1;
  const isShown = (move, step) => (move.ranks[step] ?? 99) <= rows || (move.id === followed && move.ranks[step] !== null);
  // A name stands where its line was last among the shown ranks: at the right, or above the dot it left from.
  const stands = (move) => Array.from({ length: steps }, (_, step) => step).filter((step) => isShown(move, step)).pop() ?? null;
  const labelled = moves.filter((move) => stands(move) !== null);
  const path = (move) => move.ranks.map((rank, step) => {
    if (!step) return `M${x(0)} ${y(rank)}`;
    const middle = (x(step - 1) + x(step)) / 2;
    return `C${middle} ${y(move.ranks[step - 1])} ${middle} ${y(rank)} ${x(step)} ${y(rank)}`;
  }).join("");
  const short = (text) => { const fit = Math.floor((right - 30) / 7.2); return text.length > fit ? `${text.slice(0, fit - 1)}…` : text; };
  return html`<figure class="bump" ref=${ref}>
    <svg width=${width} height=${height} role="group" aria-label=${`Ranks by step: ${labelled.map((move) => `${move.label} ${move.ranks.map((rank) => rank ?? "below").join(", ")}`).join("; ")}`}>
      <rect class="band" x=${x(answering - 1) - 11} y=${top - 14} width="22" height=${gap * rows + 10} rx="11" />
      ${Array.from({ length: steps }, (_, step) => html`<text key=${step} class="axis" x=${x(step)} y="12" text-anchor="middle">${width > 420 ? `step ${step + 1}` : step + 1}</text>`)}
      ${moves.map((move, place) => html`<g key=${move.id} class=${`move ${move.id === followed ? "followed" : ""} ${active === move.id ? "on" : active ? "off" : ""}`}
        onMouseEnter=${() => setActive(move.id)} onMouseLeave=${() => setActive(null)}>
        <path d=${path(move)} stroke=${HUES[place] ?? "var(--line-strong)"} />
        ${move.ranks.map((rank, step) => isShown(move, step) && html`<g key=${step}><circle cx=${x(step)} cy=${y(rank)} r="8.500" fill=${HUES[place] ?? "var(--line-strong)"} />
          <text class="dot" x=${x(step)} y=${y(rank) + 3.6} text-anchor="middle">${rank}</text></g>`)}
        <title>${`${move.label}: ${move.ranks.map((rank, step) => `step ${step + 1} ${rank === null ? "further below" : `rank ${rank}, ${percent(move.shares[step])}`}`).join("; ")}`}</title>
        ${stands(move) !== null && html`<text class="name" x=${x(stands(move)) + (stands(move) === last ? 16 : 11)} y=${y(move.ranks[stands(move)]) + (stands(move) === last ? 4.500 : -8)} tabindex="0" role="link"
          onClick=${() => onPick(move)} onKeyDown=${(event) => event.key === "Enter" && onPick(move)}>${short(move.label)}</text>`}
      </g>`)}
    </svg></figure>`;
}

const nice = (value) => (value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toPrecision(3));

/** One measure over the training, with its best point marked. */
export function Curve({ title, points, share = false, best = "max", markAt }) {
  const [ref, width] = useWidth(360);
  const [at, setAt] = useState(null);
  const [height, left, right, top, bottom] = [190, 44, 12, 14, 24];
  const kept = points.filter(([, value]) => Number.isFinite(value));
  const say = (value) => (share ? percent(value) : nice(value));
  if (kept.length < 1) return null;
  const xs = kept.map(([x]) => x);
  const ys = kept.map(([, value]) => value);
  const [low, high] = [share ? 0 : Math.min(...ys), Math.max(...ys)];
  const span = high - low || 1;
  const x = (value) => left + ((value - Math.min(0, xs[0])) / ((xs[xs.length - 1] - Math.min(0, xs[0])) || 1)) * (width - left - right);
  const y = (value) => top + (1 - (value - low) / span) * (height - top - bottom);
  const place = markAt === undefined ? ys.indexOf(best === "max" ? high : Math.min(...ys)) : kept.findIndex(([, , step]) => step === markAt);
  const shown = at ?? (place >= 0 ? place : ys.length - 1);
  const locate = (event) => {
    const offset = event.clientX - event.currentTarget.getBoundingClientRect().left;
    setAt(xs.reduce((near, value, index) => (Math.abs(x(value) - offset) < Math.abs(x(xs[near]) - offset) ? index : near), 0));
  };
  const onKey = (event) => {
    const to = { ArrowLeft: shown - 1, ArrowRight: shown + 1, Home: 0, End: ys.length - 1, Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    setAt(to === null ? null : Math.max(0, Math.min(ys.length - 1, to)));
  };
  return html`<figure class="curve card" ref=${ref}>
    <figcaption><h3>${title}</h3><span><b>${say(ys[shown])}</b> <span class="soft small">epoch ${xs[shown].toFixed(xs[shown] % 1 ? 1 : 0)}${shown === place && at === null ? ", kept" : ""}</span></span></figcaption>
    <${Picture} name=${title}><svg width=${width} height=${height} role="img" aria-label=${`${title} from ${say(ys[0])} to ${say(ys[ys.length - 1])} over ${ys.length} validations; arrow keys read it`}
      tabindex="0" onKeyDown=${onKey} onBlur=${() => setAt(null)} onMouseMove=${locate} onMouseLeave=${() => setAt(null)}>
      ${[0, 0.5, 1].map((part) => html`<g key=${part}><line class="grid" x1=${left} x2=${width - right} y1=${y(low + part * span)} y2=${y(low + part * span)} />
        <text class="axis" x=${left - 7} y=${y(low + part * span) + 4} text-anchor="end">${say(low + part * span)}</text></g>`)}
      <text class="axis" x=${left} y=${height - 6}>${Math.min(0, xs[0])}</text>
      <text class="axis" x=${width - right} y=${height - 6} text-anchor="end">${xs[xs.length - 1].toFixed(0)} epochs</text>
      <path class="line" d=${kept.map(([px, value], index) => `${index ? "L" : "M"}${x(px).toFixed(1)} ${y(value).toFixed(1)}`).join("")} />
      <circle class="mark" cx=${x(xs[shown])} cy=${y(ys[shown])} r="4.500" />
    </svg><//></figure>`;
}

/** Confidence against the share that is true, by tenths: on the diagonal it holds; larger dots stand for more candidates. */
export function ReliabilityChart({ rows }) {
  const [ref, width] = useWidth(340);
  const side = Math.min(width, 360);
  const [left, bottom, top] = [40, 34, 8];
  const x = (value) => left + value * (side - left - 10);
  const y = (value) => top + (1 - value) * (side - top - bottom);
  const most = Math.log1p(Math.max(...rows.map((row) => row.candidates)));
  return html`<figure class="reliability" ref=${ref}><${Picture} name="Reliability"><svg width=${side} height=${side} role="img" aria-label=${`Reliability diagram: ${rows.map((row) => `confidence ${percent(row.confidence)}, true ${percent(row.true)}`).join("; ")}`}>
    ${[0, 0.5, 1].map((part) => html`<g key=${part}><line class="grid" x1=${x(0)} x2=${x(1)} y1=${y(part)} y2=${y(part)} /><text class="axis" x=${left - 7} y=${y(part) + 4} text-anchor="end">${percent(part)}</text>
      <text class="axis" x=${x(part)} y=${side - 18} text-anchor=${part === 1 ? "end" : "middle"}>${percent(part)}</text></g>`)}
    <text class="axis" x=${x(1)} y=${side - 3} text-anchor="end">mean confidence →</text><text class="axis" transform=${`translate(10 ${y(0)}) rotate(-90)`}>true →</text>
    <line class="ideal" x1=${x(0)} y1=${y(0)} x2=${x(1)} y2=${y(1)} />
    <path class="line" d=${rows.map((row, place) => `${place ? "L" : "M"}${x(row.confidence).toFixed(1)} ${y(row.true).toFixed(1)}`).join("")} />
    ${rows.map((row) => html`<circle key=${row.from} class="mark" cx=${x(row.confidence)} cy=${y(row.true)} r=${(3 + 6 * Math.log1p(row.candidates) / most).toFixed(1)}><title>${`${row.candidates} candidates`}</title></circle>`)}
  </svg><//></figure>`;
}
