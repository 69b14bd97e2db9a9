// The API in words, made from its own description.
import { html, useJson, useTitle, Loading, Trouble } from "./lib.js";

export function DocsPage() {
  const { data, error, loading, again } = useJson("/api/openapi.json");
  useTitle("API");
  return html`
    <header><h1 tabindex="-1">The API</h1>
      <p class="lead">Everything the page shows is JSON. The twin of a page is its address with <code>/api</code> before it.
        The full description is <a href="/api/openapi.json">/api/openapi.json</a>; counters for Prometheus are at <a href="/metrics">/metrics</a>.</p></header>
    ${loading && html`<${Loading} what="Reading the description" />`}
    ${error && html`<${Trouble} error=${error} again=${again} />`}
    ${data && operations(data).map((one) => html`<${Operation} key=${one.key} one=${one} schemas=${data.components.schemas} />`)}`;
}

function operations(description) {
  return Object.entries(description.paths).flatMap(([path, methods]) => Object.entries(methods)
    .map(([method, operation]) => ({ key: `${method} ${path}`, path, method: method.toUpperCase(), ...operation })))
    .sort((one, other) => one.tags.includes("service") - other.tags.includes("service"));
}

const nameOf = (reference) => reference?.split("/").pop();
const kind = (schema = {}) => schema.$ref ? nameOf(schema.$ref) : schema.anyOf ? schema.anyOf.map(kind).filter((one) => one !== "null").join(" or ")
  : schema.enum ? schema.enum.join(" | ") : schema.const ? String(schema.const) : schema.type === "array" ? `list of ${kind(schema.items)}` : schema.type ?? "any";

function Operation({ one, schemas }) {
  const reply = one.responses["200"]?.content?.["application/json"]?.schema;
  const body = one.requestBody?.content?.["application/json"]?.schema;
  return html`<section class="card operation"><h2><span class="method">${one.method}</span> <code>${one.path}</code></h2>
    <p>${one.description}</p>
    ${one.parameters?.length > 0 && html`<dl class="facts">${one.parameters.map((part) => html`<div key=${part.name}><dt><code>${part.name}</code>${part.required ? "" : html` <span class="soft">optional</span>`}</dt>
      <dd>${part.schema?.description ?? part.description ?? ""} <span class="soft">${kind(part.schema)}${part.schema?.default !== undefined && part.schema.default !== null ? `, else ${part.schema.default === "" ? "empty" : part.schema.default}` : ""}</span></dd></div>`)}</dl>`}
    ${body && html`<${Shape} title="Takes" name=${nameOf(body.$ref)} schemas=${schemas} />`}
    ${reply?.$ref && html`<${Shape} title="Gives" name=${nameOf(reply.$ref)} schemas=${schemas} />`}</section>`;
}

function Shape({ title, name, schemas }) {
  const schema = schemas[name];
  if (!schema?.properties) return null;
  return html`<details><summary>${title} <code>${name}</code></summary><p class="small soft">${schema.description ?? ""}</p><dl class="facts">${Object.entries(schema.properties).map(([field, one]) => html`
    <div key=${field}><dt><code>${field}</code></dt><dd><span class="soft">${kind(one)}</span> ${one.description ?? ""}</dd></div>`)}</dl></details>`;
}
