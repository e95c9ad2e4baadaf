// A table that sorts by any column, keeps the rows with some words, and is copied as CSV.

const MOST_ROWS = 200; // Rows shown before a button asks for all of them.

// columns: {heading, unit, note}, of which the note is a tooltip and optional; rows(): arrays of values. The first cell is a button, and a click there or on the row calls
// pick(row number), where pickable(row number) says so. Rows of which picked(row number) is true stand out. The table has refresh() for when
// any of them says something else.
function dataTable(place, { name, columns, rows, pick, pickable = () => Boolean(pick), picked = () => false }) {
  const state = { words: "", column: null, down: false, all: false, wide: false };
  const status = element("span", { className: "note" });
  status.setAttribute("role", "status");
  const copying = button("copy as CSV", async () => {
    const found = arranged();
    const done = await copied([columns.map(titled), ...found.map(({ row }) => row)].map(csvLine).join(""));
    status.textContent = done ? `${grouped(found.length)} rows copied` : "this browser does not permit pages to copy";
  });
  const filter = field("rows with", `${name}-filter`, (words) => ((state.words = words), refresh()), { type: "search" });
  const columnsButton = button("", () => ((state.wide = !state.wide), refresh()));
  const tools = element("div", { className: "choices" }, filter, copying, columnsButton, status);
  const wide = element("div", { className: "wide", tabIndex: 0 });
  wide.setAttribute("role", "region");
  wide.setAttribute("aria-label", name);
  const heads = columns.map((column, number) => sortable(column, () => sortBy(number)));
  const body = element("tbody");
  const head = element("thead", {}, element("tr", {}, ...heads));
  wide.append(element("table", { className: "data" }, head, body));
  const more = element("p");
  place.append(tools, wide, more);

  function sortBy(number) {
    const numeric = columns[number].unit !== "text";
    if (state.column === number && state.down !== numeric) state.column = null;
    else Object.assign(state, { down: state.column === number ? !state.down : numeric, column: number });
    refresh();
  }

  // Rows with every word, in order, and the number that each has in rows().
  function arranged() {
    const words = state.words.toLowerCase().split(/\s+/).filter(Boolean);
    const has = ({ row }) => {
      const text = row.filter((cell) => typeof cell === "string").join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    };
    const found = rows().map((row, number) => ({ row, number })).filter(has);
    if (state.column === null) return found;
    return found.sort((one, other) => ordered(one.row[state.column], other.row[state.column], state.down) || one.number - other.number);
  }

  function refresh() {
    const found = arranged();
    const seen = state.all ? found : found.slice(0, MOST_ROWS);
    heads.forEach((cell, number) => {
      const way = state.column !== number ? "none" : state.down ? "descending" : "ascending";
      cell.setAttribute("aria-sort", way);
    });
    const focused = body.contains(document.activeElement) ? document.activeElement.closest("tr").dataset.number : null;
    body.replaceChildren(...seen.map(({ row, number }) => line(row, number)));
    fit();
    if (focused !== null) body.querySelector(`tr[data-number="${focused}"] button`)?.focus();
    const rest = found.length - seen.length;
    const all = button(`show ${grouped(rest)} more rows`, () => ((state.all = true), refresh()));
    more.replaceChildren(...(rest ? [all] : []));
    status.textContent = state.words ? `${grouped(found.length)} rows` : "";
  }

  // Hide the columns that the page has no room for, until the reader asks for them.
  function fit() {
    const lines = [...head.rows, ...body.rows];
    lines.forEach((row) => [...row.cells].forEach((cell) => (cell.hidden = false)));
    const past = heads.findIndex((cell, place) => place > 1 && cell.offsetLeft + cell.offsetWidth > wide.clientWidth + 1);
    columnsButton.hidden = past < 0;
    columnsButton.textContent = `show all ${columns.length} columns`;
    columnsButton.setAttribute("aria-pressed", String(state.wide));
    if (past > 0 && !state.wide) lines.forEach((row) => [...row.cells].slice(past).forEach((cell) => (cell.hidden = true)));
  }

  function line(row, number) {
    const cells = row.map((cell, place) => {
      const text = shown(cell, columns[place].unit === "bytes" ? "" : columns[place].unit);
      if (place) return element("td", { className: columns[place].unit === "text" ? "" : "number", textContent: text });
      const first = element("th", { scope: "row" });
      first.append(pickable(number) ? button(text, null, { className: "link" }) : text);
      return first;
    });
    const made = element("tr", { className: picked(number) ? "picked" : "" }, ...cells);
    made.dataset.number = number;
    if (pickable(number)) made.onclick = () => pick(number);
    return made;
  }

  redraws.push(fit);
  refresh();
  return { refresh };
}

function sortable(column, sort) {
  const cell = element("th", { scope: "col", className: column.unit === "text" ? "" : "number" });
  cell.append(button(titled(column), sort, { className: "sort", title: column.note ?? "" }));
  return cell;
}

function titled({ heading, unit }) {
  return ["text", "share"].includes(unit) || heading.includes(unit) ? heading : `${heading} (${unit})`;
}

// Cells that say nothing come last either way.
function ordered(one, other, down) {
  const empty = (cell) => cell === null || cell === undefined || cell === "";
  if (empty(one) || empty(other)) return empty(one) - empty(other);
  const way = typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en");
  return down ? -way : way;
}

// A line of CSV (RFC 4180); a text that a spreadsheet would take for a formula is kept from being one.
function csvLine(cells) {
  const cell = (found) => {
    const text = found === null || found === undefined ? "" : String(found);
    const safe = typeof found === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return `${cells.map(cell).join(",")}\r\n`;
}

// Whether a text is on the clipboard now.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = element("textarea", { value: text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
