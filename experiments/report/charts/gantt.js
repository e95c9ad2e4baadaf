// What every unit does over time: of any number of activities what the window's pixels can show, and zoom.

const LEAST_CYCLES = 16; // What is shown at the closest.
const gantt = { range: null };
const timeFigures = DATA.figures.filter((figure) => figure.time); // They show the same cycles below each other.

// The number of the first activity of a row that ends after a time.
function firstAfter(row, time) {
  let [low, high] = [0, row.end.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.end[middle] > time) high = middle;
    else low = middle + 1;
  }
  return low;
}

// What of a row is in a range of time, activities that are together shorter than two pixels as one.
function visible(row, [from, to], pixel) {
  const found = [];
  for (let next = firstAfter(row, from); next < row.begin.length && row.begin[next] < to; next += 1) {
    const last = found.at(-1);
    if (last && row.end[next] - last.begin < 2 * pixel) {
      if (row.active[next] > row.active[last.most]) last.most = next;
      Object.assign(last, { end: row.end[next], last: next });
    } else found.push({ begin: row.begin[next], end: row.end[next], first: next, last: next, most: next });
  }
  return found;
}

function ganttText(figure, row, { first, last, most, begin, end }) {
  const sum = (column) => column.slice(first, last + 1).reduce((all, one) => all + one, 0);
  const label = escaped(figure.labels[row.label[most]].text);
  const labels = new Set(row.label.slice(first, last + 1)).size;
  const name = labels > 1 ? `${label} and ${labels - 1} more` : label;
  const [active, count] = [sum(row.active), sum(row.commands)];
  const what = figure.groups[row.group[most]].name;
  const times = `cycles ${grouped(begin)} to ${grouped(end)}: ${grouped(active)} at work`;
  const noun = figure.noun || (figure.labels[row.label[most]].layer < 0 ? "nodes" : "commands");
  return `<b>${name}</b><br>${row.name}, ${escaped(what)}<br>${times}${count ? `<br>${grouped(count)} ${noun}` : ""}`;
}

// A trace a group of the bars that the window shows; names stand in those with room for them.
function ganttTraces(figure, width) {
  const [from, to] = gantt.range;
  const pixel = (to - from) / width;
  const traces = figure.groups.map(({ name, color, text }) => ({
    type: "bar",
    orientation: "h",
    width: 0.8, // of a row; else it depends on how far apart the rows of the trace are
    name: escaped(name),
    showlegend: !figure.rows.some((row) => row.name === name), // that row's name says it
    base: [],
    x: [],
    y: [],
    text: [],
    hovertext: [],
    customdata: [],
    textposition: [],
    insidetextanchor: "middle",
    textangle: 0,
    constraintext: "none",
    textfont: { size: 11, color: text },
    hovertemplate: "%{hovertext}<extra></extra>",
    marker: { color, line: { color: "#FFFFFF", width: 0 } },
  }));
  figure.rows.forEach((row, y) => {
    for (const one of visible(row, gantt.range, pixel)) {
      const trace = traces[row.group[one.most]];
      const label = figure.labels[row.label[one.most]];
      const [begin, end] = [Math.max(one.begin, from), Math.min(one.end, to)];
      const fits = (end - begin) / pixel > 8 * label.text.length + 8 && one.first === one.last;
      trace.base.push(begin);
      trace.x.push(Math.max(end - begin, pixel));
      trace.y.push(y);
      trace.text.push(fits ? escaped(label.text) : "");
      trace.textposition.push(fits ? "inside" : "none");
      trace.hovertext.push(ganttText(figure, row, one));
      trace.customdata.push(label.layer);
    }
  });
  return traces;
}

const UNIT_PIXELS = 7.6; // A character of a unit's name.

// The names of a chart's units, in the room that the window has for them.
function unitNames(figure) {
  return (figure.rows ?? []).map(({ name }) => escaped(shortened(name, innerWidth < NARROW ? 16 : 34)));
}

// A chart over time, in the range of all of them.
function drawTimed(figure) {
  gantt.range ??= [0, figure.total];
  const layout = copy(figure.layout);
  const lengths = timeFigures.flatMap(unitNames).map((name) => 14 + UNIT_PIXELS * name.length);
  layout.margin.l = Math.max(layout.margin.l, ...lengths);
  if (figure.rows) layout.yaxis.ticktext = unitNames(figure);
  layout.xaxis.range = gantt.range;
  const width = document.getElementById(figure.id).clientWidth - layout.margin.l - layout.margin.r;
  draw(figure.id, figure.rows ? ganttTraces(figure, width) : figure.blocks ? memoryTraces(figure, width) : figure.data, layout);
  const shown = document.getElementById("gantt-range"); // A run without layers has no timeline of the units.
  if (!figure.rows || !shown) return;
  const [from, to] = gantt.range.map((time) => grouped(Math.round(time)));
  shown.textContent = `cycles ${from} to ${to} of ${grouped(figure.total)}`;
}

// Show these cycles in all charts over time, as near as the run has them.
function showCycles(figure, from, to) {
  const width = Math.min(figure.total, Math.max(LEAST_CYCLES, to - from));
  const begin = Math.max(0, Math.min(from + (to - from - width) / 2, figure.total - width));
  gantt.range = [begin, begin + width];
  timeFigures.forEach(drawTimed);
}

// Buttons for what the mouse does, and a list of layers to go to.
function addGanttTools(figure) {
  const zoomed = (by) => {
    const [from, to] = gantt.range;
    const [middle, half] = [(from + to) / 2, ((to - from) / 2) * by];
    showCycles(figure, middle - half, middle + half);
  };
  const moved = (by) => {
    const [from, to] = gantt.range;
    const step = (to - from) * by;
    const within = Math.max(-from, Math.min(step, figure.total - to));
    showCycles(figure, from + within, to + within);
  };
  const places = [...new Set(figure.rows.flatMap((row) => row.label))].sort((one, other) => one - other);
  const list = chooser("go to", "gantt-layer", [["", "the whole run"], ...places.map((place) => [place, figure.labels[place].text])], "", (found) => {
    if (found === "") return showCycles(figure, 0, figure.total);
    const at = figure.rows.flatMap((row) => row.begin.map((begin, number) => [row.label[number], begin, row.end[number]]));
    const members = at.filter(([label]) => label === Number(found));
    const [[from], [, to]] = [extent(members.map(([, begin]) => begin)), extent(members.map(([, , end]) => end))];
    showCycles(figure, from, to);
  });
  const ways = [["zoom in", () => zoomed(0.5)], ["zoom out", () => zoomed(2)], ["earlier", () => moved(-0.5)],
    ["later", () => moved(0.5)], ["whole run", () => showCycles(figure, 0, figure.total)]];
  const range = element("span", { id: "gantt-range", className: "note" });
  range.setAttribute("role", "status");
  const group = element("div", { className: "group" }, ...ways.map(([text, act]) => button(text, act)));
  document.getElementById(figure.id).before(element("div", { className: "choices" }, group, list, range));
}

function startTimed() {
  for (const figure of timeFigures) {
    const place = document.getElementById(figure.id);
    place.on("plotly_relayout", (change) => {
      if ("xaxis.range[0]" in change) showCycles(figure, change["xaxis.range[0]"], change["xaxis.range[1]"]);
      else if (change["xaxis.autorange"]) showCycles(figure, 0, figure.total);
    });
    if (figure.rows || figure.blocks) place.on("plotly_click", ({ points: [{ customdata }] }) => customdata >= 0 && choose(customdata));
  }
}
