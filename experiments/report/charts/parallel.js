// Parallel coordinates: an axis a column, a line a point.

const AXIS_PIXELS = 105; // The least width of an axis: where the window has less, the chart scrolls.
const SHADES = ["#00224E", "#35456C", "#666970", "#948E77", "#C8B866"]; // of the scale Cividis, dark to light
const parallel = { names: [] };

function parallelChoices(update) {
  const offered = [...DATA.axes, ...DATA.figures.filter((name) => !DATA.axes.includes(name) && !name.includes("."))];
  const chosen = new Set(DATA.parallel);
  const refresh = () => (parallel.names = offered.filter((name) => chosen.has(name)));
  refresh();
  const group = buttons("axes", offered, (name) => chosen.has(name), (name) => {
    toggle(chosen, name);
    refresh();
    group.refresh();
    update();
  }, wordsOf);
  document.getElementById("parallel-choices").append(group.group, limitTools(update));
}

// What a click on an axis does, with a keyboard: keep the points that are at least as good in a column.
function limitTools(update) {
  const limit = { name: DATA.figures[0], text: "" };
  const options = DATA.figures.map((name) => [name, titleOf(name)]);
  const list = chooser("at least as good in", "limit-column", options, limit.name, (name) => (limit.name = name));
  const typed = field("as", "limit-value", (text) => (limit.text = text), { type: "number", step: "any" });
  const keep = button("keep these points", () => {
    if (limit.text === "" || Number.isNaN(Number(limit.text))) return;
    choice.limits.set(limit.name, Number(limit.text));
    update();
  });
  return element("div", { className: "choices" }, list, typed, keep);
}

// Where the values of a column stand on its axis, from 0 to 1, with the labels of some of them.
function scaleOf(name, points) {
  const column = DATA.columns[name];
  if (column.codes) {
    const values = distinct(name, points);
    const last = values.length - 1;
    const places = new Map(values.map((found, number) => [found, last ? number / last : 0.5]));
    const named = thinned(values, 12);
    const ticks = named.map((found) => [places.get(found), escaped(told(name, found))]);
    return { place: (found) => places.get(found), ticks };
  }
  const values = points.map((point) => value(name, point));
  const [low, high] = extent(values);
  const log = widelySpread(values);
  const measure = log ? Math.log : (found) => found;
  const place = (found) => (high > low ? (measure(found) - measure(low)) / (measure(high) - measure(low)) : 0.5);
  const shares = high > low ? [0, 0.25, 0.5, 0.75, 1] : [0.5];
  const at = (share) => (log ? low * (high / low) ** share : low + (high - low) * share);
  return { place, ticks: shares.map((share) => [share, short(name, Number(at(share).toPrecision(3)))]) };
}

function lines(points, scales, extra) {
  const [x, y, customdata, text] = [[], [], [], []];
  for (const point of points) {
    const words = described(point);
    parallel.names.forEach((name, number) => {
      x.push(number);
      y.push(scales[number].place(value(name, point)));
      customdata.push(point);
      text.push(words);
    });
    x.push(null);
    y.push(null);
    customdata.push(null);
    text.push("");
  }
  return { type: "scatter", mode: "lines", x, y, customdata, text, hovertemplate: "%{text}<extra></extra>", ...extra };
}

function drawParallel(points, front) {
  const names = parallel.names;
  const scales = names.map((name) => scaleOf(name, points));
  const onFront = new Set(front);
  const others = thinned(points.filter((point) => !onFront.has(point)), DATA.lines);
  const sign = DATA.columns[choice.y].more ? -1 : 1;
  const ranked = [...others].sort((one, other) => sign * (value(choice.y, one) - value(choice.y, other)));
  const share = Math.ceil(ranked.length / SHADES.length) || 1;
  const traces = (darkScreen.matches ? SHADES.toReversed() : SHADES).map((color, number) => {
    const members = ranked.slice(number * share, (number + 1) * share);
    return lines(members, scales, { line: { color, width: 1 }, opacity: 0.55, showlegend: false });
  }).reverse();
  const frontLine = { color: FRONT_COLOR, width: 2.5 };
  traces.push(lines(front, scales, { name: "Pareto front", line: frontLine, showlegend: true }));
  if (choice.picked !== null && passes(choice.picked)) {
    const line = { color: "#000000", width: 4 };
    traces.push(lines([choice.picked], scales, { name: "chosen", line, showlegend: true }));
  }
  const drawn = others.length + front.length;
  const part = drawn < points.length ? ` (${drawn.toLocaleString("en")} of them drawn)` : "";
  const title = `${points.length.toLocaleString("en")} points${part}`;
  draw("parallel", traces, parallelLayout(scales), title, AXIS_PIXELS * names.length);
}

function parallelLayout(scales) {
  const names = parallel.names;
  const layout = copy(DATA.layout);
  layout.xaxis = {
    range: [-0.4, names.length - 0.4],
    tickmode: "array",
    tickvals: names.map((_, number) => number),
    ticktext: names.map((name) => folded(titleOf(name), 13)),
    tickangle: 0,
    automargin: true,
    showgrid: false,
    zeroline: false,
    fixedrange: true,
  };
  layout.yaxis = { visible: false, range: [-0.06, 1.06], fixedrange: true };
  const line = { color: "#000000", width: 1.5 };
  layout.shapes = names.map((_, number) => ({ type: "line", x0: number, x1: number, y0: 0, y1: 1, line }));
  const label = { showarrow: false, xanchor: "left", xshift: 4, font: { size: 11 }, bgcolor: "#FFFFFF" };
  layout.annotations = scales.flatMap((scale, number) =>
    scale.ticks.map(([place, text]) => ({ ...label, x: number, y: place, text })),
  );
  layout.margin.l = 20;
  return layout;
}

// Keep the points that go through a point of an axis; on an axis of results those at least as good.
function chooseOnAxis(event) {
  const { x, customdata } = event.points[0];
  const name = parallel.names[x];
  if (name === undefined || customdata === null) return;
  const found = value(name, customdata);
  if (DATA.columns[name].codes) {
    if (choice.only.get(name)?.has(found)) choice.only.delete(name);
    else choice.only.set(name, new Set([found]));
  } else choice.limits.set(name, found);
}
