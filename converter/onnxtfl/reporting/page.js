"use strict";
(() => {
  const root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("onnxtfl-theme"); } catch { return null; } };
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const button = document.getElementById("theme");
  const show = () => { button.textContent = dark() ? "Light" : "Dark"; };
  if (stored() === "dark" || stored() === "light") root.dataset.theme = stored();
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    try { localStorage.setItem("onnxtfl-theme", root.dataset.theme); } catch { /* a page without storage */ }
    show();
  });
  show();

  const value = (row, k) => {
    const cell = row.cells[k];
    return cell.dataset.v === undefined ? cell.textContent : parseFloat(cell.dataset.v);
  };
  const order = (a, b) => {
    if (typeof a === "number" && typeof b === "number") {
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
      return a < b ? -1 : a > b ? 1 : 0;
    }
    return String(a).localeCompare(String(b), undefined, { numeric: true });
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, k) => head.querySelector("button").addEventListener("click", () => {
      const number = head.classList.contains("number");
      const before = head.getAttribute("aria-sort");
      const up = before ? before !== "ascending" : !number;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [value(row, k), row]);
      rows.sort((a, b) => (up ? 1 : -1) * order(a[0], b[0]));
      body.append(...rows.map((entry) => entry[1]));
    }));
  }
  for (const field of document.querySelectorAll("input[type=search]")) {
    const table = document.getElementById(field.dataset.table);
    const count = document.getElementById(field.dataset.table + "-count");
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      count.textContent = `${shown} of ${table.tBodies[0].rows.length}`;
    });
  }
})();
