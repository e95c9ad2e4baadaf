// Pages with charts per layer: filter the layers by kind and name, order them, and show all figures of one.

const state = {
  kinds: new Set(),
  words: "",
  order: DATA.order,
  most: DATA.layers.length > 150 ? "40" : "all",
  percent: false,
  layer: null,
};
const refreshers = [];

function passesFilter(layer) {
  const { name, kind } = DATA.layers[layer];
  return (!state.kinds.size || state.kinds.has(kind)) && name.toLowerCase().includes(state.words.toLowerCase());
}

// The numbers of the layers to show, in the order to show them.
function shownLayers() {
  const all = DATA.layers.map((_, number) => number);
  const ranked = [...all].sort((one, other) => DATA.weights[other] - DATA.weights[one] || one - other);
  const found = ranked.filter(passesFilter);
  const kept = state.most === "all" ? found : found.slice(0, Number(state.most));
  return state.order === "network" ? kept.sort((one, other) => one - other) : kept;
}

// A trace with the points of these layers only; bars take the rows of the order.
function subset(trace, places) {
  if (!trace.customdata) return trace;
  const indices = trace.customdata.map((_, index) => index).filter((index) => places.has(trace.customdata[index]));
  const part = { ...trace };
  for (const key of ["x", "y", "hovertext", "text", "customdata"]) {
    if (Array.isArray(trace[key])) part[key] = indices.map((index) => trace[key][index]);
  }
  if (trace.type === "bar") part.y = part.customdata.map((layer) => places.get(layer));
  if (state.layer !== null) {
    const strong = part.customdata.map((layer) => (layer === state.layer ? 1 : 0.35));
    part.marker = { ...trace.marker, opacity: strong };
  }
  return part;
}

// The traces of a chart of parts, each row in per cent of its own.
function inPercent(traces) {
  const sums = new Map();
  traces.forEach((trace) => trace.customdata.forEach((row, index) => sums.set(row, (sums.get(row) ?? 0) + trace.x[index])));
  return traces.map((trace) => ({
    ...trace,
    x: trace.x.map((found, index) => (100 * found) / sums.get(trace.customdata[index])),
    hovertemplate: trace.hovertemplate.replace("%{x:,} cycles", "%{x:.1f} %"),
  }));
}

function drawFigure(figure, layers) {
  if (figure.time) return drawTimed(figure);
  const layout = copy(figure.layout);
  const longest = innerWidth < NARROW ? 16 : 34;
  if (!figure.layers) return draw(figure.id, figure.data, layout);
  const places = new Map(layers.map((layer, place) => [layer, place]));
  if (figure.data[0].type === "bar") {
    layout.yaxis.tickvals = layers.map((_, place) => place);
    layout.yaxis.ticktext = layers.map((layer) => escaped(shortened(DATA.layers[layer].name, longest)));
    layout.yaxis.range = [layers.length - 0.4, -0.6];
    layout.height = Math.max(200, DATA.margin + figure.row * layers.length);
  }
  const percent = figure.parts && state.percent;
  if (percent) Object.assign(layout.xaxis, { title: { text: "% of the layer's cycles", standoff: 8 }, range: [0, 100] });
  const data = (percent ? inPercent(figure.data) : figure.data).map((trace) => subset(trace, places));
  draw(figure.id, data, layout);
  if (figure.named) nameMarks({ id: figure.id, data });
}

const [NAME_PIXELS, NAME_HEIGHT, MARK_PIXELS] = [6.6, 15, 9]; // A letter and a line of a name, and half a mark with its edge.

// Name the marks of a chart, the most expensive layers first, where a name meets no other name, no mark and no roof.
function nameMarks({ id, data }) {
  const place = document.getElementById(id);
  const { xaxis, yaxis } = place._fullLayout;
  const at = ({ x, y }, index) => [xaxis.d2p(x[index]), yaxis.d2p(y[index])];
  const [roofs, ...kinds] = data;
  const marks = kinds.flatMap((trace) => trace.customdata.map((layer, index) => ({ layer, trace, index, place: at(trace, index) })));
  const around = ([x, y], far) => ({ left: x - far, right: x + far, top: y - far, bottom: y + far });
  const seen = marks.filter(({ place: [x, y] }) => x >= 0 && x <= xaxis._length && y >= 0 && y <= yaxis._length);
  const taken = seen.map((mark) => around(mark.place, MARK_PIXELS - 1));
  roofs.x.slice(1).forEach((_, index) => {
    const [[x, y], [endX, endY]] = [at(roofs, index), at(roofs, index + 1)];
    const steps = Math.ceil(Math.hypot(endX - x, endY - y) / 4);
    for (let step = 0; step <= steps; step += 1) taken.push(around([x + ((endX - x) * step) / steps, y + ((endY - y) * step) / steps], 2));
  });
  const meets = (box) => taken.some((one) => one.left < box.right && box.left < one.right && one.top < box.bottom && box.top < one.bottom);
  const within = ({ left, right, top, bottom }) => left >= 0 && right <= xaxis._length && top >= 0 && bottom <= yaxis._length;
  const annotations = [];
  for (const { layer, trace, index, place: [x, y] } of seen.sort((one, other) => DATA.weights[other.layer] - DATA.weights[one.layer])) {
    const name = shortened(DATA.layers[layer].name, 24);
    const wide = name.length * NAME_PIXELS + 4;
    const corners = [[x + MARK_PIXELS, y - NAME_HEIGHT / 2], [x - MARK_PIXELS - wide, y - NAME_HEIGHT / 2],
      [x - wide / 2, y - MARK_PIXELS - NAME_HEIGHT], [x - wide / 2, y + MARK_PIXELS],
      [x + 4, y + MARK_PIXELS], [x - 4 - wide, y + MARK_PIXELS], [x + 4, y - MARK_PIXELS - NAME_HEIGHT], [x - 4 - wide, y - MARK_PIXELS - NAME_HEIGHT]];
    const boxes = corners.map(([left, top]) => ({ left, top, right: left + wide, bottom: top + NAME_HEIGHT }));
    const box = boxes.find((one) => within(one) && !meets(one));
    if (!box) continue;
    taken.push(box);
    annotations.push({
      x: Math.log10(trace.x[index]), y: Math.log10(trace.y[index]), text: escaped(name), showarrow: false, borderpad: 0, font: { size: 11 },
      xanchor: "center", yanchor: "middle", xshift: box.left + wide / 2 - x, yshift: y - box.top - NAME_HEIGHT / 2,
    });
  }
  Plotly.relayout(place, { annotations });
}

function showChosen() {
  const place = document.getElementById("chosen");
  place.hidden = state.layer === null;
  if (place.hidden) return;
  const { columns, rows, layers } = DATA.table;
  const [name, ...cells] = rows[layers.indexOf(state.layer)];
  const facts = columns.slice(1).map(({ heading, unit }, number) => [heading, cells[number], unit]);
  const told = facts.filter(([, cell]) => cell !== null && cell !== "" && cell !== 0);
  const measured = (cell, unit) => (["text", "share", ""].includes(unit) ? shown(cell, unit) : `${grouped(cell)} ${unit}`);
  const close = button("close", () => choose(null));
  const list = factsList(told.map(([heading, cell, unit]) => [heading, measured(cell, unit)]));
  place.replaceChildren(close, element("h3", { textContent: name }), list);
}

function choose(layer) {
  state.layer = layer === state.layer ? null : layer;
  update();
}

let listed = null;
let graph = null; // of the network, on the page of a run

function update() {
  const layers = shownLayers();
  refreshers.forEach((refresh) => refresh());
  document.getElementById("count").textContent = `${layers.length} of ${DATA.layers.length} layers`;
  showChosen();
  listed?.refresh();
  graph?.refresh(state.layer);
  if (globalThis.Plotly) drawLayers(layers);
}

function drawLayers(layers) {
  DATA.figures.filter((figure) => figure.layers).forEach((figure) => drawFigure(figure, layers));
}

function set(changes) {
  Object.assign(state, changes);
  update();
}

function addTools() {
  const kinds = [...new Set(DATA.layers.map((layer) => layer.kind))].filter(Boolean);
  const filter = buttons("kinds", kinds, (kind) => state.kinds.has(kind), (kind) => {
    toggle(state.kinds, kind);
    update();
  });
  const order = buttons("order", ["network", DATA.weight], (value) => state.order === value, (value) => set({ order: value }));
  const smaller = ["10", "40"].filter((size) => Number(size) < DATA.layers.length);
  const sizes = smaller.map((size) => [size, `${size} largest`]);
  const most = chooser("show", "most", [["all", "all"], ...sizes], state.most, (value) => set({ most: value }));
  const named = field("layers named", "named", (words) => set({ words }), { type: "search" });
  const tools = [...(kinds.length ? [filter] : []), order];
  const groups = [...tools.map(({ group }) => group), most, named];
  if (DATA.figures.some((figure) => figure.parts)) {
    const parts = buttons("parts in", ["cycles", "per cent"], (value) => (value === "per cent") === state.percent, (value) =>
      set({ percent: value === "per cent" }));
    tools.push(parts);
    groups.push(parts.group);
  }
  refreshers.push(...tools.map(({ refresh }) => refresh));
  const count = element("span", { id: "count", className: "note" });
  count.setAttribute("role", "status");
  document.getElementById("tools").append(...groups, count);
}

function addTable() {
  const { columns, rows, layers } = DATA.table;
  const members = () => rows.map((_, row) => row).filter((row) => (layers[row] < 0 ? !state.kinds.size : passesFilter(layers[row])));
  let shownRows = [];
  listed = dataTable(document.getElementById("layer-table"), {
    name: "layers",
    columns,
    rows: () => (shownRows = members()).map((row) => rows[row]),
    pick: (number) => choose(layers[shownRows[number]]),
    pickable: (number) => layers[shownRows[number]] >= 0,
    picked: (number) => layers[shownRows[number]] === state.layer,
  });
}

// A page may have charts of the whole run and no layers.
function drawAll() {
  DATA.figures.filter((figure) => !figure.layers).forEach((figure) => drawFigure(figure, []));
  drawLayers(shownLayers());
}

if (DATA.graph) graph = networkGraph(document.getElementById("network-graph"), DATA.graph);
if (DATA.layers.length) {
  addTools();
  update();
  addTable();
}
const timeline = DATA.figures.find((figure) => figure.id === "unit-timeline");
if (timeline) addGanttTools(timeline);
redraws.push(drawAll);
whenDrawable(() => {
  drawAll();
  startTimed();
  for (const figure of DATA.figures.filter((one) => one.layers)) {
    const place = document.getElementById(figure.id);
    place.on("plotly_click", (event) => choose(event.points[0].customdata));
    if (figure.named) place.on("plotly_relayout", (change) => Object.keys(change).some((key) => /^xaxis\.(auto)?range/.test(key)) && nameMarks(place));
  }
});
