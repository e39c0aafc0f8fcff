"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const PAGE = matchMedia("(max-width: 700px)").matches ? 25 : 100, MOST = 12, DASHES = ["", "7 3", "2 3", "9 3 2 3"];
const textOrder = new Intl.Collator("en", { numeric: true }).compare;
const $ = (id) => document.getElementById(id);
const make = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};
const svg = (tag, attributes, ...children) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
};
const note = (textContent) => make("p", { className: "note", textContent });
let selected = data.runs.opening; // positions in data.runs.details

// ---- tables that sort, filter and search

function ordered(rows, place, { keys }, down) { // what has no value comes last either way
  const key = ({ i, cells }) => keys ? keys[i] : cells[place] || null;
  const compare = keys ? (a, b) => a - b : textOrder, sign = down ? -1 : 1;
  return rows.map((row) => [key(row), row])
    .sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null) : sign * compare(a, b))
    .map(([, row]) => row);
}

function menuOf({ heading, one }, place, rows) {
  const values = [...new Set(rows.map((row) => row[place]))].filter((value) => value);
  const all = one ? [] : [make("option", { value: "", textContent: "all" })]; // one at a time: no common column
  const menu = make("select", { name: heading }, ...all, ...values.map((value) => make("option", { value, textContent: value })));
  return { place, menu, one, label: make("label", { hidden: values.length < 2 }, heading, menu) };
}

function swatch(eraser) {
  const square = make("span", { className: "swatch" });
  square.style.background = data.colours[eraser];
  return square;
}

function cellOf(text, { heading, keys, menu }) {
  const cell = make("td", { className: !keys && text.length > 16 ? "words" : "" }, ...(menu && Object.hasOwn(data.colours, text) ? [swatch(text)] : []), text);
  cell.dataset.heading = heading; // above the number where the window is narrow
  return cell;
}

// columns: heading, keys (numbers that order its rows, or none), menu, one (no "all" in the menu), hidden (a menu only)
function sheet({ title, caption, columns, rows, figures = [] }, lead = () => []) {
  const at = { sort: null, down: false, shown: PAGE }, numbered = rows.map((cells, i) => ({ cells, i }));
  const shown = columns.map((column, place) => ({ column, place })).filter(({ column }) => !column.hidden);
  const menus = columns.flatMap((column, place) => column.menu ? [menuOf(column, place, rows)] : []);
  const others = menus.some(({ one, menu }) => one && menu.options.length > 1) ? "; other settings in the menu" : "";
  const search = make("input", { type: "search", placeholder: "words in any column" });
  const count = make("p", { className: "count" }), body = make("tbody"), more = make("button", { className: "more", type: "button" });
  count.setAttribute("role", "status");
  const heads = shown.map(({ column, place }) => {
    const button = make("button", { type: "button", textContent: column.heading });
    button.addEventListener("click", () => show({ down: at.sort === place && !at.down, sort: place }));
    return make("th", { scope: "col" }, button);
  });
  const rowOf = ({ cells, i }, filled) => {
    const line = make("tr", {}, ...filled.map(({ column, place }) => cellOf(cells[place], column)));
    line.prepend(...lead(i, line));
    if (figures.length) line.append(make("td", {}, ...(figures[i] ? [make("a", { href: figures[i], textContent: "figure" })] : [])));
    return line;
  };
  const show = (change = {}) => {
    Object.assign(at, change);
    const words = search.value.toLowerCase().split(/\s+/), has = (line) => words.every((word) => line.includes(word));
    let kept = numbered.filter(({ cells }) => has(cells.join(" ").toLowerCase())
      && menus.every(({ place, menu }) => !menu.value || cells[place] === menu.value));
    if (at.sort !== null) kept = ordered(kept, at.sort, columns[at.sort], at.down);
    const filled = shown.filter(({ place }) => kept.some(({ cells }) => cells[place]));
    body.replaceChildren(...kept.slice(0, at.shown).map((row) => rowOf(row, filled)));
    count.textContent = `${kept.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}${others}`;
    more.hidden = kept.length <= at.shown;
    more.textContent = `show ${Math.min(PAGE, kept.length - at.shown)} more`;
    heads.forEach((head, i) => {
      head.hidden = !filled.includes(shown[i]);
      head.setAttribute("aria-sort", shown[i].place !== at.sort ? "none" : at.down ? "descending" : "ascending");
    });
  };
  more.addEventListener("click", () => show({ shown: at.shown + PAGE }));
  search.addEventListener("input", () => show({ shown: PAGE }));
  for (const { menu } of menus) menu.addEventListener("change", () => show({ shown: PAGE }));
  const form = make("form", { className: "filters" }, make("label", {}, "search", search), ...menus.map(({ label }) => label));
  form.setAttribute("aria-label", `Filters: ${title}`);
  form.addEventListener("submit", (event) => event.preventDefault());
  const blank = (wanted) => wanted ? [make("td")] : [];
  const head = make("tr", {}, ...blank(lead.length), ...heads, ...blank(figures.length));
  const scroll = make("div", { className: "scroll", tabIndex: 0 }, make("table", {}, make("thead", {}, head), body));
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", title);
  show();
  return { section: make("section", {}, make("h3", { textContent: title }), form, count, scroll, more, note(caption)), show };
}

function choose(i, line) { // the first cell of a run's row
  const run = data.runs.details[i];
  const box = make("input", { type: "checkbox", checked: selected.includes(i) });
  box.setAttribute("aria-label", `show ${nameOf(run)}`);
  line.className = box.checked ? "chosen" : "";
  box.addEventListener("change", () => {
    const full = box.checked && selected.length === MOST; // the first selected makes room
    selected = box.checked ? [...selected, i].slice(-MOST) : selected.filter((other) => other !== i);
    line.className = box.checked ? "chosen" : "";
    if (full) results.show();
    showSelection();
  });
  return [make("td", { className: "box" }, box)];
}

// ---- selected runs: curves, certificate, configuration

const NAMES = ["eraser", "model", "dataset", "command"];
const nameOf = (run, names = NAMES) => names.map((name) => run[name]).join(" · ");

function showSelection() {
  $("selection").hidden = $("cards").hidden = !selected.length;
  drawCurves();
  $("cards").replaceChildren(...selected.map((i) => card(data.runs.details[i])));
}

function drawCurves() {
  const turns = {}; // runs of one eraser share its colour and differ in their dashes
  const lines = selected.map((i) => {
    const run = data.runs.details[i], turn = turns[run.eraser] = (turns[run.eraser] ?? -1) + 1;
    return { run, style: `stroke: ${data.colours[run.eraser]}; stroke-dasharray: ${DASHES[turn % DASHES.length]}` };
  });
  const differs = (name) => new Set(lines.map(({ run }) => run[name])).size > 1; // what all share is said once
  const own = ["eraser", ...NAMES.slice(1).filter(differs)], shared = NAMES.slice(1).filter((name) => !differs(name));
  const key = (style) => svg("svg", { viewBox: "0 0 34 10" }, svg("line", { x1: 0, x2: 34, y1: 5, y2: 5, style }));
  $("legend").replaceChildren(...lines.slice(0, 1).map(({ run }) => make("span", {}, nameOf(run, shared))),
    ...lines.map(({ run, style }) => make("span", {}, key(style), ` ${nameOf(run, own)}${run.lacks ? ` (${run.lacks})` : ""}`)));
  plot($("learning"), lines, "learning", "training examples", Math.log10, (_, xs) => [...new Set(xs)].sort((a, b) => a - b));
  plot($("losses"), lines, "losses", "epoch", (x) => Math.log10(x + 1), (high) => {
    const powers = Array.from({ length: Math.ceil(Math.log10(high + 1)) }, (_, power) => 10 ** power);
    return [0, ...powers.flatMap((power) => [power, 2 * power, 5 * power])].filter((epoch) => epoch <= high);
  });
}

function plot(place, lines, key, label, scale, ticks) {
  const drawn = lines.filter(({ run }) => run[key]?.[0].length);
  place.parentElement.hidden = !drawn.length;
  if (!drawn.length) return;
  const width = place.clientWidth, height = 300, left = 42, right = 12, top = 12, bottom = 40;
  const xs = drawn.flatMap(({ run }) => run[key][0]), low = Math.min(...xs), high = Math.max(...xs);
  const chance = Math.log2(Math.max(...drawn.map(({ run }) => run.classes)));
  const tallest = 1.08 * Math.max(chance, ...drawn.flatMap(({ run }) => run[key][1].map((y, i) => y + run[key][2][i])));
  const x = (v) => left + (width - left - right) * (high === low ? .5 : (scale(v) - scale(low)) / (scale(high) - scale(low)));
  const y = (v) => height - bottom - (height - top - bottom) * v / tallest;
  const text = (x, y, anchor, words) => svg("text", { x, y, "text-anchor": anchor }, words);
  const line = (className, x1, x2, y1, y2) => svg("line", { class: className, x1, x2, y1, y2 });
  const figure = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `loss in bits per label over ${label}` });
  const step = tallest > 8 ? 2 : tallest > 3 ? 1 : .5;
  for (let v = 0; v <= tallest; v += step) figure.append(line("grid", left, width - right, y(v), y(v)), text(left - 6, y(v) + 4, "end", v));
  let last = -Infinity;
  for (const v of ticks(high, xs)) {
    const end = x(v) > width - 30; // there a label is left of its tick
    if (x(v) - last < (end ? 72 : 48)) continue;
    last = x(v);
    figure.append(line("tick", x(v), x(v), height - bottom, height - bottom + 4),
      text(x(v), height - bottom + 17, end ? "end" : "middle", v.toLocaleString("en")));
  }
  figure.append(text((left + width - right) / 2, height - 6, "middle", label), line("chance", left, width - right, y(chance), y(chance)),
    text(width - right, y(chance) - 4, "end", `uniform code, ${chance.toFixed(2)} bits`));
  drawn.forEach(({ run, style }, i) => { // the first are the widest, and seen beneath those that coincide with them
    const [at, middle, std] = run[key];
    const edge = (sign) => at.map((v, j) => `${x(v).toFixed(1)},${y(Math.max(0, middle[j] + sign * std[j])).toFixed(1)}`);
    figure.append(svg("polygon", { points: [...edge(1), ...edge(-1).reverse()].join(" "), style: `fill: ${data.colours[run.eraser]}` }),
      svg("polyline", { points: edge(0).join(" "), style, "stroke-width": Math.max(1.2, 4 - .5 * i) }));
  });
  place.replaceChildren(figure);
}

function card(run) {
  const box = make("article", {}, make("h4", {}, swatch(run.eraser), nameOf(run)));
  if (run.lacks) box.append(make("p", { className: "lacks", textContent: `incomplete: ${run.lacks}` }));
  if (run.ids) box.append(note(run.ids.join(", ")));
  if (run.certificate !== undefined) {
    const versions = Object.entries(data.pool[run.versions]).map((version) => version.join(" "));
    box.append(note(`${run.parameters.toLocaleString("en")} parameters, ${run.took} of a device, seeds ${run.seeds.join(", ")}; ${versions.join(", ")}`));
    if (run.paper) box.append(note(`Table 16 of the paper: ${run.paper}`));
    const splits = Object.entries(data.pool[run.certificate]), gaps = ["mean_gap", "covariance_gap", "edit_size", "out_of_range"];
    const line = (first, cells, tag) => make("tr", {}, make("th", { textContent: first }), ...cells.map((textContent) => make(tag, { textContent })));
    box.append(make("details", {}, make("summary", { textContent: "certificate" }), make("table", {},
      line("", gaps.map((gap) => gap.replaceAll("_", " ")), "th"),
      ...splits.map(([split, values]) => line(split, gaps.map((gap) => values[gap].toPrecision(2)), "td")))));
  }
  if (run.config) {
    const config = Object.fromEntries(Object.entries(run.config).map(([key, place]) => [key, data.pool[place]]));
    box.append(make("details", {}, make("summary", { textContent: "configuration" }), make("pre", { textContent: JSON.stringify(config, null, 2) })));
  }
  return box;
}

// ---- the page

const results = sheet(data.runs, choose);
$("summary").textContent = `Built ${data.built} from ${data.roots.join(", ")}.`;
$("problems").hidden = !data.problems.length;
$("problems").firstElementChild.textContent = `${data.problems.length} remarks on these runs`;
$("problems").lastElementChild.append(...data.problems.map((textContent) => make("li", { textContent })));
$("trained").hidden = !data.runs.rows.length;
$("cards").before(results.section);
$("clear").addEventListener("click", () => { selected = []; results.show(); showSelection(); });
window.addEventListener("resize", drawCurves);
showSelection();
$("sheets").hidden = !data.sheets.length;
$("sheets").append(...data.sheets.map((one) => sheet(one).section));
$("figures").hidden = !data.figures.length;
$("gallery").append(...data.figures.map(({ path, name }) => make("figure", {},
  make("a", { href: path }, make("img", { src: path, loading: "lazy", alt: name })), make("figcaption", { textContent: name }))));
