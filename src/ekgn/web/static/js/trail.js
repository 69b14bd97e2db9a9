// The way here: questions asked one from the other, each a link back.
import { html, Link } from "./lib.js";

const LONGEST = 12;

/** The trail that a page hands on: what led here, and here. */
export function extended(trail, label) {
  const here = location.pathname + location.search;
  const before = trail.filter((stop) => stop.url !== here);
  return [...before, { label, url: here }].slice(-LONGEST);
}

export function Trail({ trail }) {
  if (!trail.length) return null;
  return html`<nav class="trail" aria-label="The way here"><ol>${trail.map((stop, place) => html`<li key=${stop.url}>
    <${Link} href=${stop.url} trail=${trail.slice(0, place)}>${stop.label}<//></li>`)}<li aria-current="page">here</li></ol></nav>`;
}
