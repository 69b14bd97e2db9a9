// Taking things away: the address, a picture as SVG or PNG, a table as CSV, the page as a command.
import { html, useState, useRef } from "./lib.js";

const SVG = "http://www.w3.org/2000/svg";

function download(name, blob) {
  const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

const fileName = (name, ending) => `${name.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "ekgn"}.${ending}`;

/** A table as CSV: quoted where it must be, and no cell that a spreadsheet would take for a formula. */
export function asCsv(rows) {
  const cell = (value) => {
    const text = typeof value === "number" ? String(value) : String(value ?? "").replace(/^[=+\-@\t\r]/, "'$&");
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;
}

/** The cells of the table in the same section as a button. */
const cellsBeside = (button) => [...button.closest("section").querySelector("table").rows].map((row) => [...row.cells].map((one) => one.textContent.trim()));

/** A button that saves rows (the first names the columns), or the table beside it, as a CSV file. */
export const TakeCsv = ({ name, rows = cellsBeside }) => html`<button class="quiet take" aria-label=${`Save as CSV: ${name}`} title="Save this table"
  onClick=${(event) => download(fileName(name, "csv"), new Blob(["\ufeff", asCsv(rows(event.currentTarget))], { type: "text/csv" }))}>CSV</button>`;

const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size", "font-weight", "font-family", "text-anchor", "paint-order"];

/** A drawing with its styles written into it, on the ground of the page. */
function alone(svg) {
  const copy = svg.cloneNode(true);
  const { width, height } = svg.getBoundingClientRect();
  const [old, made] = [[svg, ...svg.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  old.forEach((one, place) => {
    const style = getComputedStyle(one);
    KEPT.forEach((name) => made[place].setAttribute(name, style.getPropertyValue(name)));
  });
  const ground = document.createElementNS(SVG, "rect");
  const [x, y] = [-12, -12]; // a margin
  for (const [name, value] of Object.entries({ x, y, width: width + 24, height: height + 24, fill: getComputedStyle(document.body).getPropertyValue("--card") })) ground.setAttribute(name, value);
  copy.prepend(ground);
  for (const [name, value] of Object.entries({ xmlns: SVG, width: width + 24, height: height + 24, viewBox: `${x} ${y} ${width + 24} ${height + 24}` })) copy.setAttribute(name, value);
  return { text: new XMLSerializer().serializeToString(copy), width: width + 24, height: height + 24 };
}

/** SVG text painted on a canvas of twice its size. */
async function painted({ text, width, height }) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas;
}

/** Something drawn, with buttons that save it: an SVG, or a canvas with a function that says the same as SVG. */
export function Picture({ name, isCanvas = false, svg: written, children }) {
  const frame = useRef(null);
  const save = async (ending) => {
    const svg = isCanvas ? null : frame.current.querySelector("svg");
    if (ending === "svg") { download(fileName(name, "svg"), new Blob([svg ? alone(svg).text : written()], { type: "image/svg+xml" })); return; }
    const canvas = svg ? await painted(alone(svg)) : flat([...frame.current.querySelectorAll("canvas")]);
    canvas.toBlob((blob) => download(fileName(name, "png"), blob), "image/png");
  };
  return html`<div class="picture"><div ref=${frame}>${children}</div>
    <p class="takes">${(isCanvas && !written ? ["png"] : ["png", "svg"]).map((ending) => html`<button key=${ending} class="quiet take" aria-label=${`Save as ${ending.toUpperCase()}: ${name}`} title="Save this picture" onClick=${() => save(ending)}>${ending.toUpperCase()}</button>`)}</p></div>`;
}

/** The layers of a drawing on one canvas. */
function flat(layers) {
  const { width, height } = layers[0];
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.body).getPropertyValue("--card");
  context.fillRect(0, 0, width, height);
  layers.forEach((layer) => context.drawImage(layer, 0, 0, width, height));
  return canvas;
}

const quoted = (text) => `'${text.replace(/'/g, "'\\''")}'`;

/** The page as a command, for programs. */
function snippets(twin) {
  const url = new URL(twin, location.origin);
  const params = [...url.searchParams];
  const given = params.length ? `, params=${JSON.stringify(params).replace(/\],/g, "], ")}` : "";
  return {
    curl: `curl ${quoted(url.href)}`,
    Python: `import requests\n\nreply = requests.get(${JSON.stringify(url.origin + url.pathname)}${given}, timeout=60)\nreply.raise_for_status()\nprint(reply.json())`,
  };
}

/** For the end of every page: its address, and how a program asks for the same. */
export function Take({ twin }) {
  const [told, setTold] = useState("");
  const copy = async (what, text) => {
    try { await navigator.clipboard.writeText(text); setTold(`${what} copied.`); } catch { setTold("This browser does not let a page copy here."); }
  };
  const made = snippets(twin);
  return html`<details class="take-away"><summary>Share and take away</summary>
    <p class="actions"><button onClick=${() => copy("Link", location.href)}>Copy link</button>${Object.entries(made).map(([name, text]) => html`<button key=${name} onClick=${() => copy(name, text)}>Copy ${name}</button>`)}<span role="status">${told}</span></p>
    ${Object.entries(made).map(([name, text]) => html`<pre key=${name} tabindex="0" role="group" aria-label=${name}><code>${text}</code></pre>`)}</details>`;
}

/** Answers as rows of a table. */
export const answerRows = (answers) => [["rank", "id", "name", "share", "known"], ...answers.map((one) => [one.rank, one.id, one.label, one.share, one.known ?? ""])];
