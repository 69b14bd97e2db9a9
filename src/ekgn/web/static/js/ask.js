// The question as a sentence with a gap: three boxes, one of them left empty.
import { html, useState, useEffect, go, runPath, relationWords } from "./lib.js";
import { EntityBox, RelationBox, empty, meant, picked, wanted } from "./combobox.js";

/** Where the three boxes lead: to the page that answers what is missing. */
export function questionAddress(run, { head, relation, tail, target }) {
  if (relation && (head || tail)) return runPath(run, "explain", { head, relation, tail, target });
  if (head && tail) return runPath(run, "predict", { head, tail });
  if (head || tail) return runPath(run, "entity", { entity: head || tail });
  return null;
}

/** `id` begins the boxes' own; `onAsk` takes the parts in place of the page that answers them. */
export function AskForm({ run, start = {}, trail = [], id = "ask", onAsk }) {
  const [head, setHead] = useState(empty);
  const [relation, setRelation] = useState(empty);
  const [tail, setTail] = useState(empty);
  const [hint, setHint] = useState("");
  const key = ["head", "relation", "tail"].map((part) => (start[part]?.id ? `picked ${start[part].id}` : start[part] ?? "")).join("\n");
  useEffect(() => {
    const value = (part, words) => (typeof start[part] === "string" ? { text: start[part], thing: null } : picked(start[part], words));
    setHead(value("head"));
    setRelation(value("relation", relationWords));
    setTail(value("tail"));
    setHint("");
  }, [key]);

  const ask = async (event) => {
    event?.preventDefault?.();
    const [from, by, to] = await Promise.all([meant(run, "entities", head), meant(run, "relations", relation), meant(run, "entities", tail)]);
    const url = questionAddress(run, { head: from, relation: by, tail: to });
    if (!url || (onAsk && !by)) { setHint("Fill in two of the three boxes; the empty one is what is asked."); return; }
    if (onAsk) onAsk({ head: from, relation: by, tail: to });
    else go(url, { trail });
  };
  const anchor = wanted(head) ? [head.thing?.id, "head"] : [tail.thing?.id, "tail"];
  const gap = (value, others) => (others ? "?" : value);
  return html`<form class=${`ask ${onAsk ? "" : "card"}`} onSubmit=${ask} role="search" aria-label=${onAsk ? `Ask a question, ${id}` : "Ask a question"}>
    <div class="ask-row">
      <${EntityBox} id=${`${id}-head`} label="From" run=${run} value=${head} onChange=${setHead} onEnter=${ask}
        placeholder=${gap("an entity", wanted(relation) && wanted(tail))} />
      <span class="ask-arrow" aria-hidden="true">—</span>
      <${RelationBox} id=${`${id}-relation`} label="Relation" run=${run} value=${relation} onChange=${setRelation} onEnter=${ask}
        entity=${anchor[0]} side=${anchor[1]} placeholder=${gap("a relation", wanted(head) && wanted(tail))} />
      <span class="ask-arrow" aria-hidden="true">→</span>
      <${EntityBox} id=${`${id}-tail`} label="To" run=${run} value=${tail} onChange=${setTail} onEnter=${ask} placeholder="?" />
      <button class="primary" type="submit">Ask</button>
    </div>
    <p class=${`ask-hint small ${hint ? "wrong" : "soft"}`} role=${hint ? "alert" : undefined}>
      ${hint || html`Leave one box empty: that is what the model will look for. ${!onAsk && html`<span class="keys"><kbd>/</kbd> jumps here.</span>`}`}</p>
  </form>`;
}

/** A fact or question in words: the gap is a question mark. */
export function Sentence({ question, gap = "?", className = "" }) {
  const name = (thing, kind) => (thing
    ? html`<bdi class=${`word word-${kind}`} title=${thing.description || thing.id}>${kind === "relation" ? relationWords(thing.label) : thing.label}</bdi>`
    : html`<span class="word gap">${gap}</span>`);
  return html`<span class=${`sentence ${className}`}>
    ${name(question.head, "entity")} <span class="joint">${name(question.relation, "relation")}</span> ${name(question.tail, "entity")}
  </span>`;
}

export function questionText(question) {
  const part = (thing, words = (text) => text) => (thing ? words(thing.label) : "?");
  return `${part(question.head)} ${part(question.relation, relationWords)} ${part(question.tail)}`;
}
