"use strict";

// Text is only ever set as text, never parsed as HTML.
function element(tag, className, ...children) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children.filter((child) => child !== null));
  return made;
}

// A name within a sentence must not turn the words around it from right to left.
function upright(name) {
  return name.replace(/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, "");
}

function isolated(name) {
  return /^[ -~]*$/.test(name) ? name : `\u2068${upright(name)}\u2069`;
}

function button(className, onclick, ...children) {
  const made = element("button", className, ...children);
  made.type = "button";
  made.addEventListener("click", onclick);
  return made;
}

// Tables: numbers before words, cells without a value last, equal ones as they were.
const collator = new Intl.Collator("en", { numeric: true });

function sortKey(cell) {
  if ("missing" in cell.dataset) return { rank: 2 };
  if ("number" in cell.dataset) return { rank: 0, value: Number(cell.dataset.number) };
  return { rank: 1, value: cell.textContent };
}

function compareKeys(a, b, direction) {
  if (a.rank === 2 || b.rank === 2) return a.rank - b.rank;
  if (a.rank !== b.rank) return direction * (a.rank - b.rank);
  if (a.rank === 1) return direction * collator.compare(a.value, b.value);
  return a.value === b.value ? 0 : direction * (a.value < b.value ? -1 : 1);
}

function sortTable(table, column) {
  const headers = [...table.tHead.rows[0].cells];
  const direction = headers[column].getAttribute("aria-sort") === "ascending" ? -1 : 1;
  for (const header of headers) header.removeAttribute("aria-sort");
  headers[column].setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, key: sortKey(row.cells[column]) }));
  rows.sort((a, b) => compareKeys(a.key, b.key, direction));
  table.tBodies[0].append(...rows.map(({ row }) => row));
}

for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((header, column) => {
    header.firstElementChild.addEventListener("click", () => sortTable(table, column));
  });
}

// Folded parts open for links to them, and for print.
function unfoldTarget() {
  const folded = document.getElementById(location.hash.slice(1))?.querySelector("details");
  if (folded) folded.open = true;
}
addEventListener("hashchange", unfoldTarget);
unfoldTarget();

let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details:not([open])")];
  for (const folded of unfolded) folded.open = true;
});
addEventListener("afterprint", () => {
  for (const folded of unfolded) folded.open = false;
});
