
// ---- sheets: further tables, each with its own filters, order and figures

const numberIn = (text) => {
  const value = parseFloat(text.replaceAll(",", "").replace("−", "-"));
  return Number.isNaN(value) ? null : value;
};

function sheet({ title, caption, headings, words, filters, rows, figures }) {
  const at = { sort: null, down: false, shown: PAGE };
  const numbered = rows.map((cells, i) => ({ cells, figure: figures[i] }));
  const menus = filters.map((heading) => menuOf(heading, headings.indexOf(heading), rows)).filter(Boolean);
  const count = make("p", { className: "count" }), body = make("tbody"), more = make("button", { className: "more", type: "button" });
  count.setAttribute("role", "status");
  const heads = headings.map((textContent, i) => {
    const button = make("button", { type: "button", textContent });
    button.addEventListener("click", () => { at.down = at.sort === i && !at.down; at.sort = i; show(); });
    return make("th", { scope: "col" }, button);
  });
  const show = () => {
    let kept = numbered.filter(({ cells }) => menus.every(({ column, menu }) => !menu.value || cells[column] === menu.value));
    const text = ({ cells }) => cells[at.sort], number = (row) => numberIn(text(row));
    if (at.sort !== null) kept = ordered(kept, words.includes(headings[at.sort]) ? text : number, at.down);
    body.replaceChildren(...kept.slice(0, at.shown).map((row) => sheetRow(row, headings, figures.length)));
    count.textContent = `${kept.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
    more.hidden = kept.length <= at.shown;
    more.textContent = `show ${Math.min(PAGE, kept.length - at.shown)} more`;
    heads.forEach((head, i) => head.setAttribute("aria-sort", i !== at.sort ? "none" : at.down ? "descending" : "ascending"));
  };
  more.addEventListener("click", () => { at.shown += PAGE; show(); });
  menus.forEach(({ menu }) => menu.addEventListener("change", () => { at.shown = PAGE; show(); }));
  const form = make("form", { className: "filters" }, ...menus.map(({ label }) => label));
  form.addEventListener("submit", (event) => event.preventDefault());
  const head = make("tr", {}, ...heads, ...(figures.length ? [make("td", { textContent: "figure" })] : []));
  const scroll = make("div", { className: "scroll", tabIndex: 0 }, make("table", { className: "sorts" }, make("thead", {}, head), body));
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", `${title}, scrolls sideways`);
  show();
  return make("section", {}, make("h3", { textContent: title }), form, count, scroll, more, make("p", { className: "note", textContent: caption }));
}

function menuOf(heading, column, rows) {
  const values = [...new Set(rows.map((cells) => cells[column]))];
  if (values.length < 2) return null;
  const menu = make("select", {}, make("option", { value: "", textContent: "all" }),
    ...values.map((value) => make("option", { value, textContent: value })));
  return { column, menu, label: make("label", {}, heading, menu) };
}

function sheetRow({ cells, figure }, headings, withFigures) {
  const row = make("tr", {}, ...cells.map((text, i) => {
    const cell = make("td", { className: ["dataset · model", "notes"].includes(headings[i]) ? "wide" : "" });
    if (data.colours[text]) cell.append(swatch({ eraser: text }));
    cell.append(text);
    return cell;
  }));
  if (withFigures) row.append(make("td", {}, figure ? make("a", { href: figure, textContent: "histogram, images" }) : ""));
  return row;
}

$("sheets").hidden = !data.sheets.length;
$("sheets").append(...data.sheets.map(sheet));
