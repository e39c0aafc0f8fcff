// On a narrow screen a table's rows are lists: each cell is preceded by its column's heading (site.css).
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const headings = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    if (headings.length < 3) continue;
    table.classList.add("listed");
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, i) => {
        if (headings[i]) cell.dataset.label = headings[i];
        if (!cell.textContent.trim()) cell.replaceChildren();
      });
  }
  for (const image of document.querySelectorAll("article img"))
    if (/erasers\.png|cifar10_jpeg\.png/.test(image.src) && !/summaries/.test(image.src)) image.classList.add("photographs");
});
