// Pages with charts per layer: filter the layers by kind, order them, and show all figures of one that is clicked.

const state = { kinds: new Set(), order: DATA.order, most: DATA.layers.length > 150 ? "40" : "all", layer: null };

// The numbers of the layers to show, in the order to show them.
function shownLayers() {
  const all = DATA.layers.map((_, number) => number);
  const ranked = [...all].sort((one, other) => DATA.weights[other] - DATA.weights[one] || one - other);
  const found = ranked.filter((number) => !state.kinds.size || state.kinds.has(DATA.layers[number].kind));
  const kept = state.most === "all" ? found : found.slice(0, Number(state.most));
  return state.order === "network" ? kept.sort((one, other) => one - other) : kept;
}

// A trace with the points of these layers only; bars take the rows of the order.
function subset(trace, places) {
  if (!trace.customdata) return trace;
  const indices = trace.customdata.map((_, index) => index).filter((index) => places.has(trace.customdata[index]));
  const part = { ...trace };
  for (const key of ["x", "y", "hovertext", "customdata"]) {
    if (Array.isArray(trace[key])) part[key] = indices.map((index) => trace[key][index]);
  }
  if (trace.type === "bar") part.y = part.customdata.map((layer) => places.get(layer));
  if (state.layer !== null) {
    const strong = part.customdata.map((layer) => (layer === state.layer ? 1 : 0.35));
    part.marker = { ...trace.marker, opacity: strong };
  }
  return part;
}

function drawFigure(figure, layers) {
  if (!figure.layers) return draw(figure.id, figure.data, figure.layout);
  const places = new Map(layers.map((layer, place) => [layer, place]));
  const layout = copy(figure.layout);
  if (figure.data[0].type === "bar") {
    layout.yaxis.tickvals = layers.map((_, place) => place);
    layout.yaxis.ticktext = layers.map((layer) => figure.layout.yaxis.ticktext[layer]);
    layout.yaxis.range = [layers.length - 0.4, -0.6];
    layout.height = Math.max(230, DATA.margin + figure.row * layers.length);
  }
  return draw(figure.id, figure.data.map((trace) => subset(trace, places)), layout);
}

function showChosen() {
  const place = document.getElementById("chosen");
  place.hidden = state.layer === null;
  if (place.hidden) return;
  const layer = DATA.layers[state.layer];
  const close = element("button", { type: "button", textContent: "close", onclick: () => choose(null) });
  place.replaceChildren(close, element("h3", { textContent: layer.name }), factsList(layer.facts));
}

function choose(layer) {
  state.layer = layer === state.layer ? null : layer;
  update();
}

const refreshers = [];

function update() {
  const layers = shownLayers();
  refreshers.forEach((refresh) => refresh());
  document.getElementById("count").textContent = `${layers.length} of ${DATA.layers.length} layers`;
  showChosen();
  DATA.figures.filter((figure) => figure.layers).forEach((figure) => drawFigure(figure, layers));
}

function addTools() {
  const kinds = [...new Set(DATA.layers.map((layer) => layer.kind))].filter(Boolean);
  const filter = buttons("kinds", kinds, (kind) => state.kinds.has(kind), (kind) => {
    toggle(state.kinds, kind);
    update();
  });
  const order = buttons("order", ["network", DATA.weight], (value) => state.order === value, (value) => {
    state.order = value;
    update();
  });
  const smaller = ["10", "40"].filter((size) => Number(size) < DATA.layers.length);
  const sizes = smaller.map((size) => [size, `${size} largest`]);
  const most = chooser("show", "most", [["all", "all"], ...sizes], state.most, (value) => {
    state.most = value;
    update();
  });
  refreshers.push(filter.refresh, order.refresh);
  const count = element("span", { id: "count", className: "note" });
  document.getElementById("tools").append(...(kinds.length ? [filter.group] : []), order.group, most, count);
}

if (DATA.layers.length) {
  addTools();
  DATA.figures.filter((figure) => !figure.layers).forEach((figure) => drawFigure(figure, []));
  update();
  for (const figure of DATA.figures.filter((one) => one.layers)) {
    document.getElementById(figure.id).on("plotly_click", (event) => choose(event.points[0].customdata));
  }
}
