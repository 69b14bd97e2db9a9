// What the memory holds: each vector's share and relations, and the map of who looks where.
import { html, useState, useEffect, useRef, useJson, useTitle, useWidth, Loading, Trouble, percent, runPath, relationWords, relationWay, atHand, refine } from "./lib.js";
import { RelationBox, empty, picked, meant } from "./combobox.js";
import { Picture, TakeCsv } from "./take.js";

const TICKS = 52; // pixels beside the map, for the axis and the numbers of vectors
const FIRST = 12; // vectors shown until all are asked for

export function MemoryPage({ run, params }) {
  const { data, error, loading, again } = useJson(`/api${runPath(run.name, "memory", { relation: params.relation })}`);
  const [slot, setSlot] = useState(null);
  const [box, setBox] = useState(empty);
  useTitle("Memory");
  useEffect(() => setBox(params.relation ? picked({ id: params.relation, label: params.relation.replace(/^\^/, "") }, relationWords) : empty), [params.relation]);
  const visit = (relation) => refine(runPath(run.name, "memory", { entity: atHand(params).entity, relation }));
  const ask = (value) => { setBox(value); if (value.thing) visit(value.thing.id); else if (!value.text && params.relation) visit(""); };
  const [all, setAll] = useState(false);
  const [sought, setSought] = useState(null);
  const find = (vector) => { setAll(true); setSought(vector); };
  useEffect(() => { if (sought !== null) { document.getElementById(`slot-${sought}`)?.scrollIntoView({ block: "center" }); setSought(null); } }, [sought]);
  const used = data?.slots.filter((one) => !one.unused) ?? [];
  return html`
    <header><h1 tabindex="-1">What the memory holds</h1>
      <p class="lead">The model shares ${run.num_slots} memory vectors among all questions. Which relations read which vector
        shows what each one came to stand for; the theme is made of the words those relations share.</p></header>
    <div class="inline-form"><${RelationBox} id="memory-relation" label="Where does a relation look?" run=${run.name} value=${box}
      onChange=${ask} onEnter=${async (value) => visit(await meant(run.name, "relations", value))} placeholder="a relation" /></div>
    ${loading && html`<${Loading} what="Reading the memory" />`}
    ${error && html`<${Trouble} error=${error} again=${again} pick=${(thing) => visit(thing.id)} />`}
    ${data?.relation && html`<${RelationUse} use=${data.relation} />`}
    ${data && html`
      <section class="card" aria-labelledby="map"><div class="section-head"><h2 id="map">The map</h2><${TakeCsv} name="memory map" rows=${() => [["vector", ...data.heat_map.relations.map(relationWay)], ...data.heat_map.slots.map((one, row) => [one, ...data.heat_map.values[row]])]} /></div>
        <p class="small soft">A row for each memory vector, a column for each relation and its reverse, both ordered so that alike ones are neighbours.${data.relations_left_out > 0 && ` The ${data.heat_map.relations.length} most frequent are drawn.`}</p>
        <${HeatMap} map=${data.heat_map} themes=${new Map(data.slots.map((one) => [one.slot, one.theme]))} onSlot=${setSlot} onPick=${find} /></section>
      <section aria-labelledby="vectors"><div class="section-head"><h2 id="vectors">${used.length} vectors in use${data.slots.length > used.length ? `, ${data.slots.length - used.length} never` : ""}</h2><${TakeCsv} name="memory vectors" rows=${() => [["vector", "theme", "share", "relation", "attention"], ...data.slots.flatMap((one) => one.relations.map((use) => [one.slot, one.theme, one.share, relationWay(use.relation), use.attention]))]} /></div>
        <ul class="slots">${(all ? data.slots : used.slice(0, FIRST)).map((one) => html`<${SlotCard} key=${one.slot} one=${one} most=${used[0].share} marked=${slot === one.slot} />`)}</ul>
        ${data.slots.length > FIRST && !all && html`<p class="more"><button onClick=${() => setAll(true)}>Show all ${data.slots.length}</button></p>`}</section>`}`;
}

function RelationUse({ use }) {
  return html`<section class="card relation-use" aria-label="Where this relation looks"><div class="section-head"><h2>${relationWay(use.relation)}</h2><${TakeCsv} name=${`memory of ${relationWay(use.relation)}`} rows=${() => [["vector", "theme", "attention"], ...use.slots.map((one) => [one.slot, one.theme, one.attention])]} /></div>
    <p class="small soft">${use.queries.toLocaleString("en")} training questions; they spread over ${use.effective_slots.toFixed(1)} vectors.</p>
    <ol class="answers">${use.slots.map((one) => html`<li key=${one.slot}><span class="rank">${one.slot}</span><span>${one.theme}</span><span></span>
      <span class="meter" aria-hidden="true"><i style=${{ width: percentWidth(one.attention, use.slots[0].attention) }}></i></span><span class="chance">${percent(one.attention)}</span></li>`)}</ol></section>`;
}

const percentWidth = (value, most) => `${(100 * value) / (most || 1)}%`;

function SlotCard({ one, most, marked }) {
  return html`<li id=${`slot-${one.slot}`} class=${`card slot-card ${marked ? "marked" : ""}`}>
    <div class="step-title"><h2>${one.theme}</h2><span class="soft small">vector ${one.slot}</span></div>
    <div class="bar" role="img" aria-label=${`${percent(one.share)} of all attention`}><i style=${{ width: percentWidth(one.share, most) }}></i></div>
    <p class="small soft">${percent(one.share)} of all attention</p>
    <ul class="small slot-relations">${one.relations.map((use) => html`<li key=${use.relation} title=${relationWay(use.relation)}><span>${relationWay(use.relation)}</span><span class="chance">${percent(use.attention)}</span></li>`)}</ul></li>`;
}

/** Drawn on a canvas: there can be tens of thousands of cells. The cards below say the same in words. */
function HeatMap({ map, themes, onSlot, onPick }) {
  const [ref, width] = useWidth(800);
  const canvas = useRef(null);
  const [at, setAt] = useState(null);
  const [rows, columns] = [map.slots.length, map.relations.length];
  const cell = Math.max(2, Math.min(56, (width - TICKS) / Math.max(columns, 1)));
  const tall = Math.max(6, Math.min(16, 520 / Math.max(rows, 1)));
  const [wide, high] = [Math.round(cell * columns), Math.round(tall * rows)];
  useEffect(() => {
    const draw = () => paint(canvas.current, map, wide, high);
    draw();
    const watch = new MutationObserver(draw);
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => watch.disconnect();
  }, [map, wide, high]);
  const read = (row, column) => { setAt([row, column]); onSlot(map.slots[row]); };
  const locate = (event) => {
    const frame = event.currentTarget.getBoundingClientRect();
    const row = Math.floor((event.clientY - frame.top) / (frame.height / rows));
    const column = Math.floor((event.clientX - frame.left) / (frame.width / columns));
    if (row >= 0 && row < rows && column >= 0 && column < columns) read(row, column);
  };
  const onKey = (event) => {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (event.key === "Enter" && at) onPick(map.slots[at[0]]);
    if (!by) return;
    event.preventDefault();
    const [row, column] = at ?? [0, 0];
    read(Math.max(0, Math.min(rows - 1, row + (at ? by[0] : 0))), Math.max(0, Math.min(columns - 1, column + (at ? by[1] : 0))));
  };
  const leave = () => { setAt(null); onSlot(null); };
  return html`<div class="heat" ref=${ref}>
    <p class="small heat-read" aria-live="polite">${at
      ? html`<b>${relationWay(map.relations[at[1]])}</b> gives <b>${percent(map.values[at[0]][at[1]])}</b> to vector ${map.slots[at[0]]}, <i>${themes.get(map.slots[at[0]])}</i>`
      : html`<span class="soft">Point at the map, or focus it and use the arrow keys, to read it; click or Enter leads to the vector.</span>`}</p>
    <${Picture} name="memory map" isCanvas=${true} svg=${() => asSvg(map, cell, tall)}><div class="heat-frame"><span class="heat-rows small soft" aria-hidden="true">memory vectors →</span>
      <div class="heat-scroll" role="group" aria-label="Map of attention; arrow keys move over it" tabindex="0" onKeyDown=${onKey} onBlur=${leave}>
        <div class="heat-ground" style=${{ width: `${wide}px`, height: `${high}px` }}>
          <canvas ref=${canvas} width=${wide} height=${high} role="img"
            aria-label="Average attention of each relation to each memory vector; the cards below list the strongest" onMouseMove=${locate}
            onClick=${(event) => { locate(event); if (at) onPick(map.slots[at[0]]); }} onMouseLeave=${leave}></canvas>
          ${at && html`<span class="heat-row" style=${{ top: `${(high * at[0]) / rows}px`, height: `${high / rows}px` }}></span>
            <span class="heat-column" style=${{ left: `${(wide * at[1]) / columns}px`, width: `${wide / columns}px` }}></span>`}
          ${tall >= 6 && map.slots.map((one, row) => row % Math.ceil(14 / tall) === 0 && html`<span key=${one} class="heat-tick" aria-hidden="true" style=${{ top: `${(row + 0.5) * tall}px` }}>${one}</span>`)}
        </div>
        ${cell >= 18 && html`<div class="heat-names small" aria-hidden="true" style=${{ width: `${wide}px` }}>${map.relations.map((one, place) => html`<span key=${one} class=${at?.[1] === place ? "on" : ""} style=${{ width: `${cell}px` }}>${relationWay(one)}</span>`)}</div>`}</div></div><//>
    <p class="heat-scale small soft"><span>relations →</span><span class="heat-key"><i></i> 0% to 100% of a relation's attention</span></p></div>`;
}

/** The map as SVG: a cell for each attention worth seeing. */
function asSvg(map, dx, dy) {
  const colours = getComputedStyle(document.documentElement);
  const [wide, high] = [dx * map.relations.length, dy * map.slots.length];
  const cells = map.values.flatMap((row, y) => row.map((value, x) => (value < 0.002 ? "" : `<rect x="${(x * dx).toFixed(1)}" y="${(y * dy).toFixed(1)}" width="${dx.toFixed(1)}" height="${dy.toFixed(1)}" fill-opacity="${Math.sqrt(value).toFixed(2)}"/>`)));
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${wide}" height="${high}" viewBox="0 0 ${wide} ${high}"><rect width="${wide}" height="${high}" fill="${colours.getPropertyValue("--sunk")}"/><g fill="${colours.getPropertyValue("--accent")}">${cells.join("")}</g></svg>`;
}

function paint(canvas, map, wide, high) {
  if (!canvas) return;
  const scale = devicePixelRatio || 1;
  canvas.width = wide * scale;
  canvas.height = high * scale;
  canvas.style.width = `${wide}px`;
  canvas.style.height = `${high}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const colours = getComputedStyle(document.documentElement);
  context.fillStyle = colours.getPropertyValue("--sunk");
  context.fillRect(0, 0, wide, high);
  context.fillStyle = colours.getPropertyValue("--accent");
  const [dx, dy] = [wide / map.relations.length, high / map.slots.length];
  map.values.forEach((row, y) => row.forEach((value, x) => {
    context.globalAlpha = Math.sqrt(value);
    context.fillRect(x * dx, y * dy, dx - (dx > 6 ? 1 : 0), dy - (dy > 6 ? 1 : 0));
  }));
}
