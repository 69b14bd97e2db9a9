// An entity in the training graph; what the model would add is dashed.
import { html, useState, useEffect, useRef, useJson, useTitle, Loading, Trouble, Link, count, runPath, relationWords, go } from "./lib.js";
import { EntityBox, picked, meant, empty } from "./combobox.js";
import { questionAddress } from "./ask.js";
import { Sure, sureWords } from "./fact.js";
import { Picture, TakeCsv } from "./take.js";
import { Trail, extended } from "./trail.js";

export function NeighbourhoodPage({ run, params, trail }) {
  const url = params.entity ? `/api${runPath(run.name, "neighbourhood", { entity: params.entity })}` : null;
  const { data, error, loading, again } = useJson(url);
  const [box, setBox] = useState(empty);
  useTitle(data ? `Around ${data.centre.label}` : "Neighbourhood");
  useEffect(() => { setBox(data ? picked(data.centre) : params.entity ? { text: params.entity, thing: null } : empty); }, [data?.centre.id, params.entity]);
  const here = data ? extended(trail, `around ${data.centre.label}`) : trail;
  const visit = (id) => go(runPath(run.name, "neighbourhood", { entity: id }), { trail: here });
  const change = (value) => { setBox(value); if (value.thing) visit(value.thing.id); };
  return html`
    <${Trail} trail=${trail} />
    <header><h1 tabindex="-1">${data ? html`Around ${data.centre.label}` : "A neighbourhood"}</h1>
      <p class="lead">${data?.centre.description || "Pick an entity to see the facts around it, and the links the model would add."}</p></header>
    <div class="inline-form"><${EntityBox} id="around" label="Entity" run=${run.name} value=${box} onChange=${change}
      onEnter=${async (value) => { const id = await meant(run.name, "entities", value); if (id) visit(id); }} placeholder="an entity" /></div>
    ${loading && url && html`<${Loading} what="Drawing" />`}
    ${error && html`<${Trouble} error=${error} again=${again} pick=${(thing) => go(runPath(run.name, "neighbourhood", { entity: thing.id }), { replace: true, trail })} />`}
    ${data && html`
      <${Drawing} data=${data} visit=${visit} />
      <${Key} data=${data} />
      <div class="two">
        <${Links} title="The model would add" edges=${data.edges.filter((edge) => edge.kind === "predicted")} data=${data} run=${run.name} trail=${here} />
        <${Links} title="Training says" edges=${data.edges.filter((edge) => edge.kind === "train" && [edge.source, edge.target].includes(data.centre.id))} data=${data} run=${run.name} trail=${here} />
      </div>`}`;
}

/** What the lines of the drawing mean. */
export const Key = ({ data }) => html`<p class="legend small soft"><span class="edge-key"></span> training fact <span class="edge-key dashed"></span> predicted link</p>
  <p class="small soft">Click a name to move there, or go by arrow keys and Enter; drag to move, + and − to zoom.${data.facts_left_out > 0 && ` ${count(data.facts_left_out)} more facts are not drawn.`}</p>`;

function Links({ title, edges, data, run, trail }) {
  const name = new Map(data.nodes.map((node) => [node.id, node.label]));
  return html`<section class="card"><div class="section-head"><h2>${title}</h2>${edges.length > 0 && html`<${TakeCsv} name=${`${title} ${data.centre.label}`} rows=${() => [["head", "relation", "tail", "head name", "tail name", "confidence", "share"], ...edges.map((edge) => [edge.source, edge.relation.id, edge.target, name.get(edge.source), name.get(edge.target), edge.confidence, edge.share])]} />`}</div>${edges.length ? html`<ul class="links">${edges.map((edge) => html`
    <li key=${`${edge.source}\n${edge.relation.id}\n${edge.target}`}>
      <${Link} trail=${trail} href=${questionAddress(run, edge.source === data.centre.id ? { head: edge.source, relation: edge.relation.id, target: edge.target } : { tail: edge.target, relation: edge.relation.id, target: edge.source })}>
        <b><bdi>${name.get(edge.source)}</bdi></b> <i title=${edge.relation.label}>${relationWords(edge.relation.label)}</i> <b><bdi>${name.get(edge.target)}</bdi></b><//>
      ${edge.share !== null && html`<${Sure} fact=${edge} />`}</li>`)}</ul>` : html`<p class="small soft">Nothing.</p>`}</section>`;
}

const READABLE = 11 / 12; // of the drawing's scale, below which names are smaller than 11 pixels
const [NARROW, CELL, ROW] = [600, 112, 56]; // pixels: below which neighbours stand in rows, of a name, between rows
const short = (text, most = 26) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

export function Drawing({ data, visit }) {
  const place = useRef(null);
  const drawn = useRef(null);
  const [failed, setFailed] = useState(false);
  const [at, setAt] = useState(null); // the neighbour that the keyboard is at
  const others = data.nodes.filter((node) => node.id !== data.centre.id);
  const zoom = (by) => { const graph = drawn.current; graph?.zoom({ level: graph.zoom() * by, renderedPosition: { x: graph.width() / 2, y: graph.height() / 2 } }); };
  const light = (node, on) => node && drawn.current?.getElementById(node.id)[on ? "addClass" : "removeClass"]("lit");
  const move = (place) => { light(others[at], false); light(others[place], true); setAt(place); };
  const onKey = (event) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by && others.length) move(at === null ? 0 : (at + by + others.length) % others.length);
    else if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "Enter" && at !== null && event.target === event.currentTarget) visit(others[at].id);
    else return;
    event.preventDefault();
  };
  useEffect(() => {
    let graph = null;
    let gone = false;
    const restyle = () => graph?.style(sheet()).update();
    import("../vendor/cytoscape/cytoscape.mjs").then(({ default: cytoscape }) => {
      if (gone) return;
      const narrow = place.current.clientWidth < NARROW;
      place.current.style.height = narrow ? `${ROW * rowsOf(data, place.current.clientWidth).length + 2 * ROW}px` : "";
      graph = cytoscape({
        container: place.current, elements: elements(data, narrow ? 17 : 26), style: sheet(), maxZoom: 2.5, minZoom: 0.2, wheelSensitivity: 0.3,
        userZoomingEnabled: false, autoungrabify: false,
        layout: { name: "preset", positions: narrow ? inRows(data, place.current.clientWidth) : places(data), padding: 36, fit: !narrow },
      });
      if (graph.zoom() > 1.15) graph.zoom(1.15);
      if (!narrow) graph.center();
      // Where there is too little room for rings, names keep their size and the frame shows what is nearest.
      if (graph.zoom() < READABLE) { graph.zoom(READABLE); graph.center(graph.$("[?centre]")); }
      drawn.current = graph;
      graph.on("tap", "node", (event) => { if (!event.target.data("centre")) visit(event.target.id()); });
      graph.on("mouseover", "node, edge", (event) => event.target.addClass("lit"));
      graph.on("mouseout", "node, edge", (event) => event.target.removeClass("lit"));
      place.current.dataset.drawn = String(graph.nodes().length);
    }).catch(() => setFailed(true));
    const watch = new MutationObserver(restyle);
    watch.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    return () => { gone = true; watch.disconnect(); graph?.destroy(); };
  }, [data]);
  if (failed) return html`<p class="soft">The drawing could not be loaded; the lists below say the same.</p>`;
  return html`<div class="graph-frame" role="group" tabindex="0" aria-label="The drawing: arrow keys go from one neighbour to the next, Enter moves there, + and − zoom" onKeyDown=${onKey} onBlur=${() => at !== null && move(null)}>
    <${Picture} name=${`around ${data.centre.label}`} isCanvas=${true} svg=${() => asSvg(drawn.current)}><div class="graph card" ref=${place} role="img" aria-label=${`${data.nodes.length} entities around ${data.centre.label}; the lists say the same in words`}></div><//>
    <p class="graph-read small" aria-live="polite">${at !== null && html`<b><bdi>${others[at].label}</bdi></b> ${joined(data, others[at])}`}</p>
    <span class="zoom"><button aria-label="Larger" onClick=${() => zoom(1.3)}>+</button><button aria-label="Smaller" onClick=${() => zoom(1 / 1.3)}>−</button><button aria-label="The whole picture" title="The whole picture" onClick=${() => drawn.current?.fit(undefined, 24)}>⤢</button></span></div>`;
}

/** What is drawn now, as SVG. */
function asSvg(graph) {
  const colours = getComputedStyle(document.documentElement);
  const [width, height] = [graph.width(), graph.height()];
  const colour = (name) => colours.getPropertyValue(name).trim();
  const plain = (text) => text.replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]);
  const lines = graph.edges().map((edge) => {
    const [from, to, predicted] = [edge.renderedSourceEndpoint(), edge.renderedTargetEndpoint(), edge.data("kind") === "predicted"];
    const bent = edge.controlPoints()?.[0];
    const bend = bent ? { x: bent.x * graph.zoom() + graph.pan().x, y: bent.y * graph.zoom() + graph.pan().y } : { x: (from.x + to.x) / 2, y: (from.y + to.y) / 2 };
    return `<path d="M${from.x} ${from.y} Q${bend.x} ${bend.y} ${to.x} ${to.y}" fill="none" stroke="${colour(predicted ? "--c2" : "--line-strong")}"${predicted ? ' stroke-dasharray="5 4"' : ""}><title>${plain(edge.data("label"))}</title></path>`;
  });
  const dots = graph.nodes().map((node) => {
    const [{ x, y }, centre] = [node.renderedPosition(), node.data("centre")];
    const [fill, line] = centre ? ["--gold", "--gold"] : node.data("kind") === "predicted" ? ["--card", "--c2"] : ["--accent", "--accent"];
    return `<circle cx="${x}" cy="${y}" r="${centre ? 11 : 5.5}" fill="${colour(fill)}" stroke="${colour(line)}" stroke-width="2"/>`
      + `<text x="${x}" y="${y + (centre ? 30 : 22)}" text-anchor="middle" font-family="sans-serif" font-size="${centre ? 15 : 12}" fill="${colour("--ink")}" stroke="${colour("--card")}" stroke-width="3" paint-order="stroke">${plain(node.data("label"))}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}"><rect width="${width}" height="${height}" fill="${colour("--card")}"/>${lines.join("")}${dots.join("")}</svg>`;
}

/** How a neighbour is joined to the centre, in words. */
function joined(data, node) {
  const own = data.edges.filter((edge) => [edge.source, edge.target].includes(node.id) && [edge.source, edge.target].includes(data.centre.id));
  return own.map((edge) => `${edge.source === node.id ? `${relationWords(edge.relation.label)} ${data.centre.label}` : `is what ${data.centre.label} ${relationWords(edge.relation.label)}`}${edge.kind === "predicted" ? ` (predicted, ${sureWords(edge)})` : ""}`).join(", ");
}

/** Neighbours in rows of as many names as the width has room for: the known above and below the centre, then the predicted. */
function rowsOf(data, width) {
  const kinds = kindsOf(data);
  const [known, predicted] = [[], []];
  data.nodes.filter((node) => node.id !== data.centre.id).forEach((node) => (kinds.get(node.id) === "predicted" ? predicted : known).push(node));
  const most = Math.max(2, Math.floor(width / CELL));
  const half = Math.ceil(known.length / 2 / most) * most;
  const parted = (some) => Array.from({ length: Math.ceil(some.length / most) }, (_, row) => some.slice(row * most, (row + 1) * most));
  return [...parted(known.slice(0, half)), [data.centre], ...parted(known.slice(half)), ...parted(predicted)];
}

function inRows(data, width) {
  const found = {};
  rowsOf(data, width).forEach((row, down) => row.forEach((node, place) => {
    // A single neighbour stands beside the line that leads from the centre to the rows beyond.
    const x = row.length === 1 && node.id !== data.centre.id ? width / 4 : ((place + 0.5) * width) / row.length;
    found[node.id] = { x, y: ROW * (down + 1) };
  }));
  return found;
}

/** Known neighbours on an inner ellipse, predicted ones on an outer; crowded rings are staggered. */
function places(data) {
  const stretch = 1.75;
  const kinds = kindsOf(data);
  const rings = [data.nodes.filter((node) => node.id !== data.centre.id && kinds.get(node.id) !== "predicted"), data.nodes.filter((node) => kinds.get(node.id) === "predicted")];
  const found = { [data.centre.id]: { x: 0, y: 0 } };
  let radius = 60;
  rings.forEach((ring, which) => {
    if (!ring.length) return;
    const crowded = ring.length > 14;
    radius = Math.max(radius + 85, (ring.length * (crowded ? 40 : 62)) / (2 * Math.PI));
    ring.forEach((node, place) => {
      const angle = (2 * Math.PI * (place + which / 2)) / ring.length - Math.PI / 2;
      const far = radius + (crowded && place % 2 ? 55 : 0);
      found[node.id] = { x: stretch * far * Math.cos(angle), y: far * Math.sin(angle) };
    });
    radius += crowded ? 55 : 0;
  });
  return found;
}

/** How each neighbour is joined to the centre: by a training fact if by any. */
function kindsOf(data) {
  const kinds = new Map();
  data.edges.filter((edge) => [edge.source, edge.target].includes(data.centre.id)).forEach((edge) => {
    const other = edge.source === data.centre.id ? edge.target : edge.source;
    if (kinds.get(other) !== "train") kinds.set(other, edge.kind);
  });
  return kinds;
}

function elements(data, most) {
  const kinds = kindsOf(data);
  const nodes = data.nodes.map((node) => ({ data: { id: node.id, label: short(node.label, most), centre: node.id === data.centre.id, kind: kinds.get(node.id) ?? "train" } }));
  const edges = data.edges.map((edge, place) => ({ data: {
    id: `edge ${place}`, source: edge.source, target: edge.target, kind: edge.kind,
    own: [edge.source, edge.target].includes(data.centre.id),
    label: short(relationWords(edge.relation.label), 30) + (edge.share === null ? "" : ` ${sureWords(edge)}`) } }));
  return { nodes, edges };
}

/** The drawing's styles, from the colours of the page. */
function sheet() {
  const colours = getComputedStyle(document.documentElement);
  const colour = (name) => colours.getPropertyValue(name).trim();
  return [
    { selector: "node", style: { width: 11, height: 11, "background-color": colour("--accent"), label: "data(label)", color: colour("--ink"), "font-size": 12, "z-index": 5, "font-family": "system-ui, sans-serif", "text-valign": "bottom", "text-margin-y": 4, "text-background-color": colour("--card"), "text-background-opacity": 0.85, "text-background-padding": 1 } },
    { selector: "node[?centre]", style: { width: 22, height: 22, "font-size": 15, "font-weight": 600, "background-color": colour("--gold") } },
    { selector: "node[kind = 'predicted']", style: { "background-color": colour("--card"), "border-width": 2, "border-color": colour("--c2") } },
    { selector: "edge", style: { width: 1, "line-color": colour("--line"), "curve-style": "bezier", "target-arrow-shape": "triangle", "arrow-scale": 0.6, "target-arrow-color": colour("--line"), "font-size": 10, color: colour("--soft"), "text-background-color": colour("--card"), "text-background-opacity": 0.9, "text-background-padding": 2 } },
    { selector: "edge[?own]", style: { width: 1.5, "line-color": colour("--line-strong"), "target-arrow-color": colour("--line-strong") } },
    { selector: "edge[kind = 'predicted']", style: { "line-style": "dashed", "line-color": colour("--c2"), "target-arrow-color": colour("--c2"), width: 1.8 } },
    { selector: "edge.lit", style: { label: "data(label)", width: 3, "z-index": 9 } },
    { selector: "node.lit", style: { "border-width": 3, "border-color": colour("--gold") } },
  ];
}
