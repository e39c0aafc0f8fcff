// On a narrow screen (site.css) a table of numbers scrolls in its own box; a table of words becomes a list, each cell preceded by its
// column's heading.
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const headings = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    if (table.matches(".autosummary")) table.classList.add("listed");
    if (headings.length < 3) continue;
    const cells = [...table.querySelectorAll("tbody td:not(:first-child)")].map((cell) => cell.textContent.trim()).filter(Boolean);
    const numbers = cells.filter((text) => /^[-+−–(]?\s*\d|^–$/.test(text));
    if (numbers.length > cells.length / 2 && cells.every((text) => text.length <= 40)) {
      table.classList.add("numbers");
      for (const cell of table.querySelectorAll("tbody td")) cell.classList.toggle("several", cell.textContent.includes(", "));
      continue;
    }
    table.classList.add("listed");
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, i) => {
        if (headings[i]) cell.dataset.label = headings[i];
        if (!cell.textContent.trim()) cell.replaceChildren();
      });
  }
});
