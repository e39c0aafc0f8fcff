"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const PAGE = 100, MOST = 12, DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const $ = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const fixed = (value, digits) => value.toFixed(digits).replace("-", "−");
const spread = (pair, digits = 3, scale = 1) => !pair ? "" :
  fixed(scale * pair[0], digits) + (pair[1] === null ? "" : " ± " + fixed(scale * pair[1], digits));
const plateau = (count) => count ? ` ‡ ${count} never left the plateau` : "";
const first = (pair) => pair ? pair[0] : null;
const below = (run) => !run.below ? "" : [run.below[0] === null ? "" : "n = " + run.below[0].toLocaleString("en"),
  run.below[1] === null ? "" : "epoch " + run.below[1]].filter(Boolean).join(", ") || "no";

// heading, what is shown, what is sorted by
const COLUMNS = [
  ["dataset", (r) => r.dataset],
  ["model", (r) => r.model],
  ["eraser", (r) => r.eraser],
  ["verb", (r) => r.verb],
  ["MDL (bits per label)", (r) => spread(r.bits) + plateau(r.stuck), (r) => first(r.bits)],
  ["Δ to control (bits)", (r) => r.delta ? r.delta[1] : "", (r) => first(r.delta)],
  ["test loss (bits)", (r) => spread(r.loss) + plateau(r.stuckFinally), (r) => first(r.loss)],
  ["accuracy (%)", (r) => spread(r.accuracy, 1, 100), (r) => first(r.accuracy)],
  ["gap (bits)", (r) => r.gap ? r.gap[1] : "", (r) => first(r.gap)],
  ["below control from", (r) => below(r) + (r.backfires ? " · backfires" : ""), (r) => r.below ? r.below[0] ?? r.below[1] : null],
  ["sharpest fall (bits)", (r) => r.drop || "", (r) => r.drop ? parseFloat(r.drop) : null],
  ["paper's unit", (r) => spread(r.paper), (r) => first(r.paper)],
  ["Table 16 (paper's unit)", (r) => r.table16 ? spread(r.table16, 2) + " (" + r.table16[2] + ")" : "",
    (r) => first(r.table16)],
  ["seeds", (r) => r.seeds ? String(r.seeds.length) : "", (r) => r.seeds ? r.seeds.length : null],
  ["incomplete", (r) => r.lacks],
];
const WIDE = new Set(["model", "Table 16 (paper's unit)"]);
const FILTERS = [["setting", "setting"], ["dataset", "dataset"], ["family", "model"], ["eraser", "eraser"], ["verb", "verb"]];
const state = { sort: null, down: false, shown: PAGE, chosen: [] };

function filtered() {
  const wanted = FILTERS.map(([key]) => [key, $("filter-" + key).value]).filter(([, value]) => value);
  const whole = $("filter-incomplete").value;
  const kept = data.runs.filter((run) => wanted.every(([key, value]) => run[key] === value)
    && (!whole || (whole === "whole") === !run.lacks));
  if (state.sort === null) return kept;
  const [, text, number] = COLUMNS[state.sort];
  return ordered(kept, number || text, state.down);
}

function ordered(rows, key, down) { // what has no value comes last either way
  const sign = down ? -1 : 1, order = new Intl.Collator("en", { numeric: true }).compare;
  const empty = (value) => value === null || value === undefined || value === "";
  return rows.map((row) => [key(row), row]).sort(([a], [b]) =>
    empty(a) || empty(b) ? empty(a) - empty(b) : sign * (typeof a === "number" ? a - b : order(a, b))).map(([, row]) => row);
}

function rowOf(run) {
  const box = make("input", { type: "checkbox", checked: state.chosen.includes(run) });
  box.setAttribute("aria-label", `show ${run.dataset}, ${run.model}, ${run.eraser}, ${run.verb}`);
  const row = make("tr", { className: box.checked ? "chosen" : "" }, make("td", {}, box));
  box.addEventListener("change", () => {
    state.chosen = box.checked ? [...state.chosen, run].slice(-MOST) : state.chosen.filter((other) => other !== run);
    if (box.checked && state.chosen.length === MOST) showTable();
    row.className = box.checked ? "chosen" : "";
    showSelection();
  });
  for (const [name, text] of COLUMNS) {
    const cell = make("td", { className: name === "incomplete" ? "lacks" : WIDE.has(name) ? "wide" : "" });
    if (name === "eraser") cell.append(swatch(run));
    cell.append(text(run));
    row.append(cell);
  }
  return row;
}

function swatch({ eraser }) {
  const square = make("span", { className: "swatch" });
  square.style.background = data.colours[eraser];
  return square;
}

function showTable() {
  const runs = filtered();
  $("results").tBodies[0].replaceChildren(...runs.slice(0, state.shown).map(rowOf));
  $("count").textContent = `${runs.length.toLocaleString("en")} of ${data.runs.length.toLocaleString("en")} results` + (new Set(data.runs.map((run) => run.setting)).size > 1 ? "; other settings in the menu" : "");
  $("more").hidden = runs.length <= state.shown;
  $("more").textContent = `show ${Math.min(PAGE, runs.length - state.shown)} more`;
  [...$("results").tHead.rows[0].cells].slice(1).forEach((head, i) =>
    head.setAttribute("aria-sort", i !== state.sort ? "none" : state.down ? "descending" : "ascending"));
}

// ---- selection: curves, certificate, configuration

function showSelection() {
  $("selection").hidden = !state.chosen.length;
  if (!state.chosen.length) return;
  const styles = new Map();
  const lines = state.chosen.map((run) => {
    const turn = styles.get(run.eraser) || 0; // runs of one eraser share its colour and differ in their dashes
    styles.set(run.eraser, turn + 1);
    return { run, colour: data.colours[run.eraser], dash: DASHES[turn % DASHES.length] };
  });
  $("legend").replaceChildren(...lines.map(({ run, colour, dash }) => {
    const key = svg("svg", { viewBox: "0 0 34 10", style: "display:inline-block;width:34px;height:10px" },
      svg("line", { x1: 0, x2: 34, y1: 5, y2: 5, stroke: colour, "stroke-width": 2.5, "stroke-dasharray": dash }));
    return make("span", {}, key, ` ${run.eraser} · ${run.model} · ${run.dataset} · ${run.verb}${run.lacks ? ` (${run.lacks})` : ""}`);
  }));
  plot($("learning"), lines, "learning", "training examples", Math.log10);
  plot($("losses"), lines, "losses", "epoch", (x) => Math.log10(x + 1));
  $("cards").replaceChildren(...state.chosen.map(card));
}

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function plot(place, lines, key, label, scale) {
  const drawn = lines.filter(({ run }) => run[key] && run[key][0].length);
  if (!drawn.length) return place.replaceChildren(make("p", { className: "note", textContent: "no curve for this selection" }));
  const width = place.clientWidth, height = 300, left = 42, right = 12, top = 12, bottom = 40;
  const xs = drawn.flatMap(({ run }) => run[key][0]);
  const [low, high] = [Math.min(...xs), Math.max(...xs)];
  const chance = Math.log2(Math.max(...drawn.map(({ run }) => run.chance)));
  const tallest = 1.08 * Math.max(chance, ...drawn.flatMap(({ run }) => run[key][1].map((y, i) => y + run[key][2][i])));
  const x = (v) => left + (width - left - right) * (high === low ? .5 : (scale(v) - scale(low)) / (scale(high) - scale(low)));
  const y = (v) => height - bottom - (height - top - bottom) * v / tallest;
  const figure = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `loss in bits per label over ${label}` });
  const step = tallest > 8 ? 2 : tallest > 3 ? 1 : .5;
  for (let v = 0; v <= tallest; v += step) {
    figure.append(svg("line", { x1: left, x2: width - right, y1: y(v), y2: y(v), stroke: "#e6e6e6" }),
      svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, String(v)));
  }
  let last = -Infinity;
  for (const v of ticks(low, high, xs, key)) {
    if (x(v) - last < 48) continue;
    last = x(v);
    figure.append(svg("line", { x1: x(v), x2: x(v), y1: height - bottom, y2: height - bottom + 4, stroke: "#444" }),
      svg("text", { x: x(v), y: height - bottom + 17, "text-anchor": x(v) > width - 30 ? "end" : "middle" }, v.toLocaleString("en")));
  }
  figure.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, label),
    svg("line", { x1: left, x2: width - right, y1: y(chance), y2: y(chance), stroke: "#888", "stroke-dasharray": "4 3" }),
    svg("text", { x: width - right, y: y(chance) - 4, "text-anchor": "end" }, `uniform code, ${chance.toFixed(2)} bits`));
  for (const { run, colour, dash } of drawn) {
    const [at, middle, std] = run[key];
    const edge = (sign) => at.map((v, i) => `${x(v).toFixed(1)},${y(Math.max(0, middle[i] + sign * std[i])).toFixed(1)}`);
    figure.append(svg("polygon", { points: [...edge(1), ...edge(-1).reverse()].join(" "), fill: colour, opacity: .15 }),
      svg("polyline", { points: edge(0).join(" "), fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": dash }));
  }
  place.replaceChildren(figure);
}

function ticks(low, high, xs, key) {
  if (key === "learning") return [...new Set(xs)].sort((a, b) => a - b);
  const found = [0];
  for (let power = 1; power <= high; power *= 10) found.push(...[1, 2, 5].map((digit) => digit * power));
  return found.filter((v) => v >= low && v <= high);
}

function card(run) {
  const box = make("article", {}, make("h3", {}, swatch(run), `${run.eraser} · ${run.model} · ${run.dataset}`));
  if (run.lacks) box.append(make("p", { className: "lacks", textContent: `incomplete: ${run.lacks}` }));
  if (run.ids) box.append(make("p", { className: "note", textContent: run.ids.join(", ") }));
  if (run.certificate !== undefined) {
    const splits = Object.entries(data.pool[run.certificate]), names = ["mean_gap", "covariance_gap", "edit_size", "out_of_range"];
    const table = make("table", {}, make("thead", {}, make("tr", {},
      ...["certificate", "mean gap", "covariance gap", "edit size", "out of range"].map((text) => make("th", { textContent: text })))));
    table.append(make("tbody", {}, ...splits.map(([split, c]) => make("tr", {}, make("th", { textContent: split }),
      ...names.map((name) => make("td", { textContent: c[name].toPrecision(2) }))))));
    box.append(make("div", { className: "table", tabIndex: 0 }, table));
    box.append(make("p", { className: "note", textContent: `${run.parameters.toLocaleString("en")} parameters, ${run.seconds} s, seeds ${run.seeds.join(", ")}; `
      + Object.entries(data.pool[run.versions]).map(([name, version]) => `${name} ${version}`).join(", ") }));
  }
  if (run.config) {
    const config = Object.fromEntries(Object.entries(run.config).map(([key, place]) => [key, data.pool[place]]));
    const lines = Object.entries(config).map(([key, value]) => value && typeof value === "object" && !Array.isArray(value)
      ? `${key}:\n` + Object.entries(value).map(([inner, v]) => `  ${inner}: ${JSON.stringify(v)}`).join("\n") : `${key}: ${JSON.stringify(value)}`);
    box.append(make("details", {}, make("summary", { textContent: "configuration" }), make("pre", { textContent: lines.join("\n") })));
  }
  return box;
}

// ---- once

function start() {
  $("unit").textContent = data.unit;
  $("differences").textContent = data.differences;
  $("trained").hidden = !data.runs.length;
  $("summary").textContent = `Built ${data.built} from ${data.roots.join(", ")}. Select rows to see their curves, certificate and configuration.`;
  if (data.problems.length) {
    $("problems").hidden = false;
    $("problems").firstElementChild.textContent = `${data.problems.length} remarks on these runs`;
    $("problems").lastElementChild.append(...data.problems.map((line) => make("li", { textContent: line })));
  }
  const filters = FILTERS.map(([key, label]) => [key, label, [...new Set(data.runs.map((run) => run[key]))].map((value) => [value, value])]);
  filters.push(["incomplete", "completeness", [["whole", "complete"], ["parts", "incomplete"]]]);
  for (const [key, label, values] of filters) {
    const all = key === "setting" ? [] : [make("option", { value: "", textContent: "all" })]; // one at a time: no common column
    const menu = make("select", { id: "filter-" + key }, ...all,
      ...values.map(([value, textContent]) => make("option", { value, textContent })));
    menu.addEventListener("change", () => { state.shown = PAGE; showTable(); });
    $("filters").append(make("label", {}, label, menu));
  }
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  const head = $("results").tHead.rows[0];
  head.append(make("td", {}));
  COLUMNS.forEach(([name], i) => {
    const button = make("button", { type: "button", textContent: name });
    button.addEventListener("click", () => {
      state.down = state.sort === i && !state.down;
      state.sort = i;
      showTable();
    });
    head.append(make("th", { scope: "col" }, button));
  });
  $("more").addEventListener("click", () => { state.shown += PAGE; showTable(); });
  $("clear").addEventListener("click", () => { state.chosen = []; showTable(); showSelection(); });
  let wide = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== wide) { wide = window.innerWidth; showSelection(); } });
  showTable();
}
start();
