// A rule's training facts as a small graph: head above, tail below, what they make likely dashed beside them.
import { html, useWidth, relationWords, runPath, go } from "./lib.js";
import { Picture } from "./take.js";

const [ROW, LEFT, TOP] = [46, 58, 16]; // pixels: between nodes, left of them, above the first
const LETTER = 7.6; // pixels, about

/** The nodes from head to tail, in the order in which the facts lead there. */
function inOrder(facts, goal) {
  const found = [goal.head];
  const all = facts.flatMap((fact) => [fact.head, fact.tail]);
  for (let grown = true; grown;) {
    grown = false;
    for (const { head, tail } of facts) {
      const [hasHead, hasTail] = [head, tail].map((one) => found.some((other) => other.id === one.id));
      if (hasHead !== hasTail) { found.push(hasHead ? tail : head); grown = true; }
    }
  }
  const rest = [...found, ...all.filter((one) => !found.some((other) => other.id === one.id))].filter((one) => one.id !== goal.tail.id || one.id === goal.head.id);
  const unique = rest.filter((one, place) => rest.findIndex((other) => other.id === one.id) === place);
  return goal.tail.id === goal.head.id ? unique : [...unique, goal.tail];
}

export function Path({ run, facts, goal, trail }) {
  const [ref, width] = useWidth(320);
  const nodes = inOrder(facts, goal);
  const y = (thing) => TOP + ROW * nodes.findIndex((one) => one.id === thing.id);
  const short = (text) => { const fit = Math.max(8, Math.floor((width - LEFT - 20) / LETTER)); return text.length > fit ? `${text.slice(0, fit - 1)}…` : text; };
  const words = ({ head, relation, tail }) => `${head.label} ${relationWords(relation.label)} ${tail.label}`;
  const visit = (thing) => go(runPath(run, "entity", { entity: thing.id }), { trail });
  const [from, to] = [y(goal.head), y(goal.tail)];
  return html`<figure class="evidence-path" ref=${ref}><${Picture} name=${`evidence ${words(goal)}`}><svg width=${width} height=${TOP + ROW * (nodes.length - 1) + 16} role="group" aria-label=${`${facts.map(words).join(", ")}; this makes likely: ${words(goal)}`}>
    <path class="likely" d=${`M${LEFT - 9} ${from} C10 ${from + 8} 10 ${to - 8} ${LEFT - 9} ${to}`} /><${Tip} x=${LEFT - 8} y=${to} turn=${-12} kind="likely" />
    ${facts.map((fact, place) => html`<${Arrow} key=${place} from=${y(fact.head)} to=${y(fact.tail)} words=${short(relationWords(fact.relation.label))} beside=${facts.findIndex((other) => Math.min(y(other.head), y(other.tail)) === Math.min(y(fact.head), y(fact.tail))) < place} />`)}
    ${nodes.map((thing) => html`<g key=${thing.id}><title>${thing.label}</title><circle class=${[goal.head.id, goal.tail.id].includes(thing.id) ? "end" : ""} cx=${LEFT} cy=${y(thing)} r="6" />
      <text class="name" x=${LEFT + 14} y=${y(thing) + 4.5} tabindex="0" role="link" onClick=${() => visit(thing)} onKeyDown=${(event) => event.key === "Enter" && visit(thing)}>${short(thing.label)}</text></g>`)}
  </svg><//></figure>`;
}

/** The arrow of one fact; one between nodes that are no neighbours, or already joined, bows out. */
function Arrow({ from, to, words, beside }) {
  const [down, far] = [to > from, beside || Math.abs(to - from) > ROW];
  const [x, end] = [far ? LEFT - 22 : LEFT, down ? to - 8 : to + 8];
  const middle = (from + to) / 2 + (beside ? 12 : 0);
  return html`<g class="fact"><path d=${far ? `M${LEFT - 5} ${from + (down ? 4 : -4)} Q${x} ${(from + to) / 2} ${LEFT - 5} ${end}` : `M${LEFT} ${from + (down ? 7 : -7)} L${LEFT} ${end}`} />
    <${Tip} x=${far ? LEFT - 4 : LEFT} y=${down ? to - 6 : to + 6} turn=${down ? 90 : -90} kind="fact" />
    <text x=${LEFT + 14} y=${middle + 4}>${down ? "↓" : "↑"} ${words}</text></g>`;
}

const Tip = ({ x, y, turn, kind }) => html`<path class=${`tip ${kind}-tip`} d="M0 0 L-8 -4 L-8 4 Z" transform=${`translate(${x} ${y}) rotate(${turn})`} />`;
