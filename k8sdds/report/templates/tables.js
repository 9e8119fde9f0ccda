// Sort and filter the tables of the report, and stack their cells on phones. Without this script, they are shown in their
// own order and can be scrolled.
"use strict";

function element(name, properties = {}, ...children) {
  const created = Object.assign(document.createElement(name), properties);
  created.append(...children);
  return created;
}

function cellText(cell) {
  return [...cell.childNodes].filter((node) => node.nodeName !== "SMALL").map((node) => node.textContent).join("").trim();
}

const SIZES = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

// The number that a cell begins with, such as 1024 for "1 KiB"; null for other text.
function cellNumber(text) {
  const found = /^(?:~ )?([+-]?\d+(?:\.\d+)?)(?:\s*(KiB|MiB|GiB|B|%|[a-zA-Zµ/]+))?/.exec(text.replace("\u2212", "-"));
  return found ? Number(found[1]) * (SIZES[found[2]] ?? 1) : null;
}

function compareCells(one, other) {
  const [a, b] = [cellNumber(one), cellNumber(other)];
  if (a !== null && b !== null && a !== b) return a - b;
  return one.localeCompare(other, "en", { numeric: true });
}

const filters = new Map();

function enhance(table) {
  const head = table.tHead?.rows[0], body = table.tBodies[0];
  const rows = body ? [...body.rows].filter((row) => !row.classList.contains("base")) : [];
  if (!head) return;
  table.classList.add("stacked");
  const titles = [...head.cells].map((cell) => [...cell.childNodes].map((node) => node.textContent).join(", "));
  for (const row of body.rows) [...row.cells].forEach((cell, column) => { cell.dataset.head = titles[column]; });
  if (rows.length < 3) return;
  const end = rows.at(-1).nextElementSibling;
  const buttons = [...head.cells].map((cell, column) => {
    const button = element("button", { type: "button", className: "sort" }, ...cell.childNodes);
    cell.append(button);
    button.addEventListener("click", () => sort(column));
    return button;
  });
  function sort(column) {
    const state = head.cells[column].getAttribute("aria-sort");
    const next = { ascending: "descending", descending: null }[state] ?? (state ? null : "ascending");
    for (const button of buttons) button.parentElement.removeAttribute("aria-sort");
    if (next) head.cells[column].setAttribute("aria-sort", next);
    table.classList.toggle("sorted", Boolean(next));
    const sign = next === "descending" ? -1 : 1;
    const keys = new Map(rows.map((row) => [row, row.cells[column] ? cellText(row.cells[column]) : ""]));
    const missing = (row) => ["", "–"].includes(keys.get(row));
    const order = next
      ? [...rows].sort((a, b) => missing(a) - missing(b) || sign * compareCells(keys.get(a), keys.get(b)))
      : rows;
    for (const row of order) body.insertBefore(row, end);
  }
  if (rows.length >= 5) addFilter(table, rows);
}

function addFilter(table, rows) {
  const input = element("input", { type: "search", autocomplete: "off" });
  const count = element("output");
  const name = table.caption?.textContent ?? table.closest("[aria-label]")?.getAttribute("aria-label") ?? "table";
  input.setAttribute("aria-label", `Filter rows: ${name}`);
  input.placeholder = "Filter rows";
  const bar = element("p", { className: "filter" }, input, " ", count);
  // Below the heading of its table: above it, the bar would look like a part of the table before.
  if (table.caption) table.caption.append(bar);
  else (table.closest(".scroll") ?? table).before(bar);
  function apply(accepts, what = "") {
    let shown = 0;
    for (const row of rows) {
      row.hidden = !accepts(row);
      shown += !row.hidden;
    }
    table.classList.toggle("filtered", shown < rows.length);
    count.textContent = shown < rows.length || what ? `${shown} of ${rows.length} rows${what && `: ${what}`} ` : "";
  }
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    apply((row) => words.every((word) => row.textContent.toLowerCase().includes(word)));
  });
  filters.set(table, { input, apply, count });
}

for (const table of document.querySelectorAll("main table")) enhance(table);

// A link to a section opens what is folded in it.
function unfold() {
  const section = document.getElementById(location.hash.slice(1))?.closest("section");
  for (const folded of section?.querySelectorAll(":scope > details") ?? []) folded.open = true;
}
unfold();
addEventListener("hashchange", unfold);

// Show the attempts of some trials in the table of all attempts, what they are, and the ways back.
function showTrials(ids, what) {
  const section = document.getElementById("trials")?.closest("section");
  const table = section?.querySelector("table");
  if (!table) return;
  const wanted = new Set(ids), from = document.activeElement, top = scrollY;
  section.querySelector("details").open = true;
  const filter = filters.get(table);
  if (filter) {
    const all = element("button", { type: "button", textContent: "Show all" });
    const back = element("button", { type: "button", textContent: "Back to the figure" });
    all.addEventListener("click", () => filter.apply(() => true));
    back.addEventListener("click", () => {
      filter.apply(() => true);
      from.focus({ preventScroll: true });
      scrollTo({ top });
    });
    filter.input.value = "";
    filter.apply((row) => wanted.has(cellText(row.cells[row.cells.length - 1])), what);
    filter.count.append(all, " ", back);
  }
  section.scrollIntoView();
  (filter?.input ?? section.querySelector("summary")).focus({ preventScroll: true });
}
