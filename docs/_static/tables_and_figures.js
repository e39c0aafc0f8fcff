// On a narrow screen (site.css) tables of numbers and wide figures scroll in their own boxes; a table of words becomes a list, each cell
// preceded by its column's heading.
addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const headings = [...table.querySelectorAll("thead th")].map((cell) => cell.textContent.trim());
    if (headings.length < 3) continue;
    const cells = [...table.querySelectorAll("tbody td:not(:first-child)")].map((cell) => cell.textContent.trim()).filter(Boolean);
    const numbers = cells.filter((text) => /^[-+−–(]?\s*\d|^–$/.test(text));
    if (numbers.length > cells.length / 2 && cells.every((text) => text.length <= 40)) {
      table.classList.add("numbers");
      continue;
    }
    table.classList.add("listed");
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, i) => {
        if (headings[i]) cell.dataset.label = headings[i];
        if (!cell.textContent.trim()) cell.replaceChildren();
      });
  }
  for (const image of document.querySelectorAll("article img")) {
    if (/erasers\.png|cifar10_jpeg\.png/.test(image.src) && !/summaries/.test(image.src)) image.classList.add("photographs");
    const shape = () => {
      const ratio = image.naturalWidth / image.naturalHeight;
      image.classList.toggle("wide", ratio > 1.5 && image.naturalWidth > 640); // one panel shrinks
      image.style.setProperty("--ratio", ratio);
    };
    image.complete ? shape() : image.addEventListener("load", shape);
  }
});
