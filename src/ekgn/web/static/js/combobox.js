// A search box with suggestions, usable with the keyboard alone.
import { html, useState, useEffect, useRef, fetchJson, address, relationWords, count } from "./lib.js";

const PAUSE = 90; // milliseconds of quiet before what was typed is searched

/** The suggestions for what is typed, while the box is open. */
function useSuggestions(source, text, open) {
  const [found, setFound] = useState({ hits: [], loading: false });
  useEffect(() => {
    if (!open) return undefined;
    const abort = new AbortController();
    setFound((before) => ({ ...before, loading: true }));
    const timer = setTimeout(() => {
      fetchJson(address(source.path, { ...source.params, q: text, limit: text ? 8 : source.most ?? 8 }), abort.signal)
        .then((reply) => setFound({ hits: reply.hits, text }))
        .catch((error) => { if (error.name !== "AbortError") setFound({ hits: [], error }); });
    }, text ? PAUSE : 0);
    return () => { clearTimeout(timer); abort.abort(); };
  }, [source.path, JSON.stringify(source.params), text, open]);
  return found;
}

/** value: { text, thing }, where thing is what was picked from the suggestions. */
export function Combobox({ id, label, placeholder, value, onChange, onEnter, source, words = (text) => text }) {
  const [open, setOpen] = useState(false);
  const [active, setActive] = useState(-1);
  const [told, setTold] = useState(""); // why what was typed is no choice yet
  const box = useRef(null);
  const now = useRef(value);
  now.current = value;
  const searched = value.thing ? "" : value.text;
  const found = useSuggestions(source, searched, open);
  useEffect(() => setActive(-1), [searched, open]);
  useEffect(() => setTold(""), [value.text, value.thing]);

  const pick = (hit) => {
    onChange({ text: words(hit.label), thing: hit });
    setOpen(false);
  };
  /** What was typed and left: the one thing with this name is taken; of anything else it is said that it is no choice. */
  const leave = async () => {
    setOpen(false);
    const { text } = now.current;
    if (now.current.thing || !text.trim()) return;
    const hits = await fetchJson(address(source.path, { q: text, limit: 2 })).then((reply) => reply.hits).catch(() => null);
    const left = now.current.text === text && !now.current.thing && document.activeElement !== box.current;
    if (!hits || !left) return;
    const same = hits.filter((hit) => hit.match === "exact");
    if (same.length === 1) pick(same[0]);
    else setTold(same.length ? "several have this name: pick one" : hits.length && hits[0].match !== "similar" ? "the start of a name: pick one" : "nothing has this name");
  };
  const onKey = (event) => {
    const last = found.hits.length - 1;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (!open) { setOpen(true); return; }
      const step = event.key === "ArrowDown" ? 1 : -1;
      setActive((now) => { const next = now + step; return next > last ? -1 : next < -1 ? last : next; });
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (open && active >= 0 && found.hits[active]) pick(found.hits[active]);
      else { setOpen(false); onEnter?.(value); }
    } else if (event.key === "Escape" && open) {
      event.preventDefault();
      setOpen(false);
    } else if (event.key === "Tab" && open && active >= 0 && found.hits[active]) {
      pick(found.hits[active]);
    }
  };
  const listId = `${id}-list`;
  return html`<div class="combo" onfocusout=${(event) => { if (!event.currentTarget.contains(event.relatedTarget)) leave(); }}>
    <label for=${id}>${label}${told && html` <span class="told">· ${told}</span>`}</label>
    <input id=${id} ref=${box} type="text" role="combobox" autocomplete="off" autocapitalize="off" spellcheck=${false}
      aria-autocomplete="list" aria-invalid=${told ? "true" : undefined} aria-expanded=${open} aria-controls=${listId}
      aria-activedescendant=${open && active >= 0 ? `${id}-${active}` : undefined}
      placeholder=${placeholder} value=${value.text} maxlength="500" class=${value.thing ? "picked" : ""}
      onInput=${(event) => { onChange({ text: event.target.value, thing: null }); setOpen(true); }}
      onFocus=${() => setOpen(true)} onClick=${() => setOpen(true)} onKeyDown=${onKey} />
    ${value.text && html`<button type="button" tabindex="-1" class="clear" aria-label=${`Clear ${label}`}
      onClick=${() => { onChange({ text: "", thing: null }); box.current.focus(); }}>×</button>`}
    <ul id=${listId} role="listbox" aria-label=${`${label} suggestions`} hidden=${!open || (!found.hits.length && !found.error && !(found.text && !found.loading))}>
      ${found.hits.map((hit, place) => html`<li key=${hit.id} id=${`${id}-${place}`} role="option" aria-selected=${place === active}
        class=${place === active ? "active" : ""} onMouseDown=${(event) => { event.preventDefault(); pick(hit); }}
        onMouseMove=${() => setActive(place)}>
        <span class="hit-name">${words(hit.label)}</span>
        <span class="hit-more">${hit.description || (hit.label !== hit.id ? hit.id : "")}</span>
        <span class="hit-facts" title=${`${count(hit.facts)} training facts`}>${source.params?.entity && !hit.facts ? "none yet" : count(hit.facts)}</span>
      </li>`)}
      ${found.error && html`<li class="none" role="option" aria-selected="false" aria-disabled="true">${found.error.message}</li>`}
      ${!found.hits.length && found.text && html`<li class="none" role="option" aria-selected="false" aria-disabled="true">Nothing is called like “${found.text}”</li>`}
    </ul>
  </div>`;
}

export const empty = { text: "", thing: null };
/** The value of a box that shows something known. */
export const picked = (thing, words = (text) => text) => (thing ? { text: words(thing.label), thing } : empty);
/** What is sent for a box: the id of what was picked, else the text as it stands. */
export const wanted = (value) => value.thing?.id ?? value.text.trim();

/** The same, once the start of a name was looked up: "fran" is France. Typos and shared names stay as typed. */
export async function meant(run, kind, value) {
  const text = wanted(value);
  if (value.thing || !text) return text;
  const reply = await fetchJson(address(`/api/runs/${encodeURIComponent(run)}/${kind}`, { q: text, limit: 2 })).catch(() => ({ hits: [] }));
  const [first, second] = reply.hits;
  return !first || first.match === "similar" || (first.match === "exact" && second?.match === "exact") ? text : first.id;
}

export const EntityBox = ({ run, ...rest }) =>
  html`<${Combobox} ...${rest} source=${{ path: `/api/runs/${encodeURIComponent(run)}/entities` }} />`;

/** A box for relations; with an entity, those its kind has and it lacks come first, then its own. */
export const RelationBox = ({ run, entity, side, ...rest }) =>
  html`<${Combobox} ...${rest} words=${relationWords}
    source=${{ path: `/api/runs/${encodeURIComponent(run)}/relations`, params: entity ? { entity, side } : {}, most: 50 }} />`;
