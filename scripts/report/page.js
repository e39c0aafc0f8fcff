"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const PAGE = 100, MOST = 12, DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const $ = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const state = { chosen: [], table: null };
const address = new URLSearchParams(location.hash.slice(1)); // keeps what is chosen, filtered, searched and sorted

function remember(key, values) {
  address.delete(key);
  values.filter((value) => value).forEach((value) => address.append(key, value));
  history.replaceState(null, "", `#${address}`);
}

// ---- a sheet: a table with menus, an order, and as many rows as are asked for

function ordered(rows, key, down) { // what has no value comes last either way
  const sign = down ? -1 : 1, order = new Intl.Collator("en", { numeric: true }).compare;
  const empty = (value) => value === null || value === "";
  return rows.map((row) => [key(row), row]).sort(([a], [b]) =>
    empty(a) || empty(b) ? empty(a) - empty(b) : sign * (typeof a === "number" ? a - b : order(a, b))).map(([, row]) => row);
}

function numberIn(text) {
  const found = /[-+−]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?/.exec(text);
  return found ? parseFloat(found[0].replaceAll(",", "").replace("−", "-")) : null;
}

function menuOf(column, place, rows, id) {
  const values = [...new Set(rows.map((row) => row.cells[place]))].filter((value) => value !== "");
  if (values.length < 2 && !id) return [];
  const all = column.one ? [] : [make("option", { value: "", textContent: "all" })]; // one at a time: no common column
  const menu = make("select", { id: id && `filter-${column.heading}` }, ...all,
    ...values.map((value) => make("option", { value, textContent: value })));
  return [{ place, menu, label: make("label", {}, column.heading, menu) }];
}

function cellOf(text, column) {
  const cell = make("td", { className: column.word ? "wide" : "" });
  if (data.colours[text]) cell.append(swatch({ eraser: text }));
  cell.append(text);
  return cell;
}

// columns: heading, word (sorted as text), menu, one (no "all" in the menu), hidden (menu only); lead: a first cell of each row
function sheet({ title = "Results", caption, columns, rows, figures = [], noun = "", id = "" }, lead = null) {
  const kept = (key) => (id && address.get(key)) || "", keep = (key, value) => id && remember(key, [value]);
  const sorted = columns.findIndex(({ heading }) => heading === kept("sort").replace(/^-/, ""));
  const at = { sort: sorted < 0 ? null : sorted, down: kept("sort").startsWith("-"), shown: PAGE };
  const numbered = rows.map((cells, i) => ({ cells, i, figure: figures[i] }));
  const shown = columns.map((column, place) => ({ column, place })).filter(({ column }) => !column.hidden);
  const menus = columns.flatMap((column, place) => column.menu ? menuOf(column, place, numbered, id) : []);
  const several = menus.some(({ place, menu }) => columns[place].one && menu.options.length > 1);
  const count = make("p", { className: "count", id: id && "count" }), body = make("tbody");
  const more = make("button", { className: "more", type: "button" });
  count.setAttribute("role", "status");
  const heads = shown.map(({ column, place }) => {
    const button = make("button", { type: "button", textContent: column.heading });
    button.addEventListener("click", () => {
      at.down = at.sort === place && !at.down;
      at.sort = place;
      keep("sort", (at.down ? "-" : "") + column.heading);
      show();
    });
    return make("th", { scope: "col" }, button);
  });
  const rowOf = (row) => {
    const line = make("tr", {}, ...shown.map(({ column, place }) => cellOf(row.cells[place], column)));
    if (lead) line.prepend(lead(row.i, line));
    if (figures.length) line.append(make("td", {}, row.figure ? make("a", { href: row.figure, textContent: "histogram, images" }) : ""));
    return line;
  };
  const show = () => {
    const words = search.value.toLowerCase().split(/\s+/), has = (line) => words.every((word) => line.includes(word));
    let kept = numbered.filter(({ cells }) => has(cells.join(" ").toLowerCase())
      && menus.every(({ place, menu }) => !menu.value || cells[place] === menu.value));
    const text = ({ cells }) => cells[at.sort], number = (row) => numberIn(text(row));
    if (at.sort !== null) kept = ordered(kept, columns[at.sort].word ? text : number, at.down);
    body.replaceChildren(...kept.slice(0, at.shown).map(rowOf));
    count.textContent = `${kept.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}${noun}` + (several ? "; other settings in the menu" : "");
    more.hidden = kept.length <= at.shown;
    more.textContent = `show ${Math.min(PAGE, kept.length - at.shown)} more`;
    heads.forEach((head, i) => head.setAttribute("aria-sort", shown[i].place !== at.sort ? "none" : at.down ? "descending" : "ascending"));
  };
  more.addEventListener("click", () => { at.shown += PAGE; show(); });
  const narrow = (key, field, event) => field.addEventListener(event, () => { at.shown = PAGE; keep(key, field.value); show(); });
  const search = make("input", { type: "search", value: kept("search"), placeholder: "words in any column" });
  narrow("search", search, "input");
  for (const { place, menu } of menus) {
    const key = columns[place].heading, value = kept(key);
    if ([...menu.options].some((option) => option.value === value)) menu.value = value;
    narrow(key, menu, "change");
  }
  const form = make("form", { className: "filters" }, make("label", {}, "search", search), ...menus.map(({ label }) => label));
  form.setAttribute("aria-label", `Filters: ${title}`);
  form.addEventListener("submit", (event) => event.preventDefault());
  const head = make("tr", {}, ...(lead ? [make("td")] : []), ...heads, ...(figures.length ? [make("td", { textContent: "figure" })] : []));
  const scroll = make("div", { className: "scroll", tabIndex: 0 }, make("table", { className: "sorts", id }, make("thead", {}, head), body));
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", `${title}, scrolls sideways`);
  show();
  const section = make("section", {}, ...(lead ? [] : [make("h3", { textContent: title })]), form, count, scroll, more, make("p", { className: "note", textContent: caption }));
  return { section, show };
}

function swatch({ eraser }) {
  const square = make("span", { className: "swatch" });
  square.style.background = data.colours[eraser];
  return square;
}

function choose(i, line) { // the first cell of a run's row
  const run = data.runs.details[i];
  const box = make("input", { type: "checkbox", checked: state.chosen.includes(run) });
  box.setAttribute("aria-label", `show ${run.dataset}, ${run.model}, ${run.eraser}, ${run.verb}`);
  line.className = box.checked ? "chosen" : "";
  box.addEventListener("change", () => {
    state.chosen = box.checked ? [...state.chosen, run].slice(-MOST) : state.chosen.filter((other) => other !== run);
    if (box.checked && state.chosen.length === MOST) state.table.show();
    line.className = box.checked ? "chosen" : "";
    chosen();
  });
  return make("td", {}, box);
}

// ---- selection: curves, certificate, configuration

function chosen() {
  remember("run", state.chosen.length ? state.chosen.map((run) => run.ids?.[0]) : ["none"]);
  showSelection();
}

function opening() { // what the address says, or else the first row's control and what it is compared with
  const wanted = address.getAll("run"), all = data.runs.details;
  if (wanted.length) return wanted.flatMap((id) => all.find((run) => run.ids?.[0] === id) || []).slice(0, MOST);
  const first = all.find((run) => run.losses);
  return all.filter((run) => run.losses && ["verb", "dataset", "model"].every((key) => run[key] === first[key])).slice(0, MOST);
}

function showSelection() {
  $("selection").hidden = $("cards").hidden = !state.chosen.length;
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
    if (x(v) - last < (x(v) > width - 30 ? 72 : 48)) continue; // at the right end a label is left of its tick
    last = x(v);
    figure.append(svg("line", { x1: x(v), x2: x(v), y1: height - bottom, y2: height - bottom + 4, stroke: "#444" }),
      svg("text", { x: x(v), y: height - bottom + 17, "text-anchor": x(v) > width - 30 ? "end" : "middle" }, v.toLocaleString("en")));
  }
  figure.append(svg("text", { x: (left + width - right) / 2, y: height - 6, "text-anchor": "middle" }, label),
    svg("line", { x1: left, x2: width - right, y1: y(chance), y2: y(chance), stroke: "#888", "stroke-dasharray": "4 3" }),
    svg("text", { x: width - right, y: y(chance) - 4, "text-anchor": "end" }, `uniform code, ${chance.toFixed(2)} bits`));
  drawn.forEach(({ run, colour, dash }, i) => { // the first are the widest, and seen beneath those that coincide with them
    const [at, middle, std] = run[key];
    const edge = (sign) => at.map((v, j) => `${x(v).toFixed(1)},${y(Math.max(0, middle[j] + sign * std[j])).toFixed(1)}`);
    figure.append(svg("polygon", { points: [...edge(1), ...edge(-1).reverse()].join(" "), fill: colour, opacity: .15 }),
      svg("polyline", { points: edge(0).join(" "), fill: "none", stroke: colour, "stroke-width": Math.max(1.2, 4 - .5 * i), "stroke-dasharray": dash }));
  });
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
    box.append(make("p", { className: "note", textContent: `${run.parameters.toLocaleString("en")} parameters, ${run.took} of a device, seeds ${run.seeds.join(", ")}; `
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
  $("trained").hidden = !data.runs.rows.length;
  $("summary").textContent = `Built ${data.built} from ${data.roots.join(", ")}. Select rows to see their curves, certificate, cost and configuration.`;
  if (data.problems.length) {
    $("problems").hidden = false;
    $("problems").firstElementChild.textContent = `${data.problems.length} remarks on these runs`;
    $("problems").lastElementChild.append(...data.problems.map((line) => make("li", { textContent: line })));
  }
  state.chosen = opening();
  state.table = sheet(data.runs, choose);
  $("cards").before(state.table.section);
  showSelection();
  $("clear").addEventListener("click", () => { state.chosen = []; state.table.show(); chosen(); });
  window.addEventListener("hashchange", () => location.reload()); // another address was pasted
  let wide = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== wide) { wide = window.innerWidth; showSelection(); } });
  $("sheets").hidden = !data.sheets.length;
  $("sheets").append(...data.sheets.map((one) => sheet(one).section));
  $("figures").hidden = !data.figures.length;
  $("gallery").append(...data.figures.map((path) => make("figure", {},
    make("a", { href: path }, make("img", { src: path, loading: "lazy", alt: path })),
    make("figcaption", { textContent: path.replace(/^.*\//, "").replace(/\.png$/, "") }))));
}
start();
