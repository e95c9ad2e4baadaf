// The Pareto front: two columns that the reader chooses, all points that pass, and the line of those that none beats.

function paretoChoices(update) {
  const columns = DATA.figures.map((name) => [name, titleOf(name)]);
  const colors = DATA.axes.map((name) => [name, titleOf(name)]);
  const set = (key) => (found) => {
    choice[key] = found;
    update();
  };
  const lists = [
    chooser("across", "pareto-x", columns, choice.x, set("x")),
    chooser("up", "pareto-y", columns, choice.y, set("y")),
  ];
  if (colors.length) lists.push(chooser("colour", "pareto-color", colors, choice.color, set("color")));
  document.getElementById("pareto-choices").append(...lists);
}

function paretoTrace(points, extra) {
  return {
    type: "scatter",
    mode: "markers",
    x: points.map((point) => value(choice.x, point)),
    y: points.map((point) => value(choice.y, point)),
    customdata: points,
    text: points.map(described),
    hovertemplate: "%{text}<extra></extra>",
    ...extra,
  };
}

// One trace a value of the colouring column, or one trace with a scale where there are many values.
function paretoGroups(points) {
  const line = { color: "#FFFFFF", width: 0.5 };
  if (!choice.color) {
    return [paretoTrace(points, { name: "points", marker: { ...DATA.groups[0], size: 9, line } })];
  }
  const values = distinct(choice.color, points);
  if (DATA.columns[choice.color].distinct.length <= DATA.groups.length) {
    return values.map((found) => {
      const members = points.filter((point) => value(choice.color, point) === found);
      const number = DATA.columns[choice.color].distinct.indexOf(found);
      const marker = { ...DATA.groups[number], size: 9, opacity: 0.8, line };
      return paretoTrace(members, { name: escaped(told(choice.color, found)), marker });
    });
  }
  const codes = points.map((point) => values.indexOf(value(choice.color, point)));
  const places = [0, Math.floor((values.length - 1) / 2), values.length - 1];
  const colorbar = {
    title: { text: titleOf(choice.color), side: "right" },
    tickvals: places,
    ticktext: places.map((place) => short(choice.color, values[place])),
  };
  const marker = { color: codes, colorscale: "Cividis", colorbar, size: 9, line };
  return [paretoTrace(points, { name: "points", marker })];
}

function drawPareto(points, front) {
  const others = thinned(points, MOST_POINTS);
  const line = {
    ...paretoTrace(front, { name: "Pareto front" }),
    mode: "lines+markers",
    line: { color: FRONT_COLOR, width: 2, shape: "hv" },
    marker: { color: "rgba(0,0,0,0)", size: 14, symbol: "circle", line: { color: FRONT_COLOR, width: 2 } },
  };
  const traces = [...paretoGroups(others), line];
  if (choice.picked !== null && passes(choice.picked)) {
    const marker = { color: "rgba(0,0,0,0)", symbol: "circle", size: 22, line: { color: "#000000", width: 3 } };
    traces.push(paretoTrace([choice.picked], { name: "chosen", marker }));
  }
  const layout = copy(DATA.layout);
  for (const [axis, name] of [["xaxis", choice.x], ["yaxis", choice.y]]) {
    const values = points.map((point) => value(name, point));
    Object.assign(layout[axis], axisOf(name, values, axis === "yaxis"));
  }
  const [drawn, all] = [others.length, points.length].map((count) => count.toLocaleString("en"));
  const part = others.length < points.length ? ` (${drawn} of ${all} points drawn)` : "";
  layout.legend.title = { text: choice.color ? `${wordsOf(choice.color)}: ` : "" };
  draw("pareto", traces, layout, `${wordsOf(choice.y)} over ${wordsOf(choice.x)}${part}`);
}

const fronts = { table: null, points: [] };

// The front as a table, of machines that run several networks all; a click on a point chooses it.
function addFront(pick) {
  const names = DATA.listed;
  const columns = names.map((name) => {
    const { words, unit, values, distinct } = DATA.columns[name];
    const numbers = (distinct ?? values).every((found) => found === null || typeof found === "number");
    return { heading: words, unit: numbers ? unit : "text" };
  });
  fronts.table = dataTable(document.getElementById("front"), {
    name: DATA.runs.length ? "machines" : "Pareto front",
    columns: [{ heading: DATA.runs.length ? "machine" : "point", unit: "text" }, ...columns],
    rows: () => fronts.points.map((point) => [DATA.keys[point].slice(0, 8), ...names.map((name) => value(name, point))]),
    pick: (number) => pick(fronts.points[number]),
    picked: (number) => fronts.points[number] === choice.picked,
  });
}

function listFront(points, front) {
  const machines = DATA.runs.length > 0;
  fronts.points = machines ? points : front;
  const told = machines ? `${grouped(points.length)} machines, ${front.length}` : `${front.length} points`;
  document.getElementById("front-count").textContent = `${told} on the front`;
  fronts.table.refresh();
}
