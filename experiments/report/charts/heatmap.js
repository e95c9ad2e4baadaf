// The heat map: the best value of a column over two axes, and where nothing fits.

const heat = { x: DATA.heat[0], y: DATA.heat[1], z: DATA.measure };

function heatmapChoices(update) {
  const axes = DATA.axes.map((name) => [name, titleOf(name)]);
  const figures = DATA.figures.filter((name) => !DATA.axes.includes(name)).map((name) => [name, titleOf(name)]);
  const set = (key) => (found) => {
    heat[key] = found;
    update();
  };
  if (!heat.y) return;
  document.getElementById("heatmap-choices").append(
    chooser("across", "heatmap-x", axes, heat.x, set("x")),
    chooser("up", "heatmap-y", axes, heat.y, set("y")),
    chooser("value", "heatmap-z", figures, heat.z, set("z")),
  );
}

// For each row and column the best value, and how many points ended ok and how many did not.
function heatCells(rows, columns) {
  const place = (values) => new Map(values.map((found, number) => [found, number]));
  const [rowOf, columnOf] = [place(rows), place(columns)];
  const cells = rows.map(() => columns.map(() => ({ best: null, ok: 0, all: 0 })));
  const ok = new Set(passing());
  for (const point of allOnAxes()) {
    const cell = cells[rowOf.get(value(heat.y, point))][columnOf.get(value(heat.x, point))];
    cell.all += 1;
    if (!ok.has(point)) continue;
    const found = value(heat.z, point);
    cell.ok += 1;
    if (cell.best === null || !betterOrEqual(heat.z, cell.best, found)) cell.best = found;
  }
  return cells;
}

function allOnAxes() {
  return Array.from({ length: DATA.points }, (_, point) => point).filter(passesAxes);
}

function heatText(cell, row, column) {
  const where = `${wordsOf(heat.x)}: ${escaped(told(heat.x, column))}<br>${wordsOf(heat.y)}: ${escaped(told(heat.y, row))}`;
  if (!cell.all) return `${where}<br>not in the sweep`;
  const found = `best ${titleOf(heat.z)}: <b>${told(heat.z, cell.best)}</b>`;
  const best = cell.best === null ? "no point ended ok or passes" : found;
  return `${where}<br>${best}<br>${cell.ok} of ${cell.all} points ended ok and pass`;
}

function drawHeatmap() {
  const layout = copy(DATA.layout);
  if (!heat.y || heat.x === heat.y) {
    const missing = heat.y ? "Choose two different axes" : "A heat map needs two axes that vary";
    return draw("heatmap", [], { ...layout, height: 200 }, missing);
  }
  const points = allOnAxes();
  const [columns, rows] = [distinct(heat.x, points), distinct(heat.y, points)];
  const cells = heatCells(rows, columns);
  const found = cells.flat().map((cell) => cell.best).filter((best) => best !== null);
  const log = found.length > 0 && widelySpread(found);
  const scaled = (best) => (best === null ? null : log ? Math.log10(best) : best);
  const named = rows.length * columns.length <= 220;
  const trace = {
    type: "heatmap",
    x: columns.map((_, place) => place),
    y: rows.map((_, place) => place),
    z: cells.map((row) => row.map((cell) => scaled(cell.best))),
    text: cells.map((row) => row.map((cell) => (cell.best === null ? "" : short(heat.z, cell.best)))),
    texttemplate: named ? "%{text}" : "",
    hovertext: cells.map((row, down) => row.map((cell, across) => heatText(cell, rows[down], columns[across]))),
    hovertemplate: "%{hovertext}<extra></extra>",
    hoverongaps: true,
    colorscale: "Cividis",
    reversescale: DATA.columns[heat.z].more,
    xgap: 2,
    ygap: 2,
    colorbar: heatScale(found, log),
  };
  layout.annotations = named ? emptyCells(cells) : [];
  const axis = (name, values) => ({
    title: { text: titleOf(name), standoff: 8 },
    tickmode: "array",
    tickvals: values.map((_, place) => place),
    ticktext: values.map((one) => escaped(told(name, one))),
    range: [-0.5, values.length - 0.5],
    showgrid: false,
  });
  Object.assign(layout.xaxis, axis(heat.x, columns));
  Object.assign(layout.yaxis, axis(heat.y, rows));
  layout.height = Math.max(220, Math.min(860, 118 + 44 * rows.length));
  draw("heatmap", [trace], layout, `Best ${wordsOf(heat.z)}`);
}

function heatScale(found, log) {
  if (!found.length) return {};
  const [low, high] = extent(found);
  const at = (share) => (log ? low * (high / low) ** share : low + (high - low) * share);
  const steps = [0, 0.25, 0.5, 0.75, 1].map(at);
  return {
    title: { text: folded(titleOf(heat.z), 14), side: "right" },
    tickvals: steps.map((step) => (log ? Math.log10(step) : step)),
    ticktext: steps.map((step) => short(heat.z, Number(step.toPrecision(3)))),
  };
}

function emptyCells(cells) {
  const font = { size: 11, color: "#595959" };
  return cells.flatMap((row, y) =>
    row.flatMap((cell, x) => {
      if (cell.best !== null) return [];
      return [{ x, y, text: cell.all ? "none" : "–", showarrow: false, font }];
    }),
  );
}

// Keep the points of a cell only, or no longer.
function chooseCell(event) {
  const points = allOnAxes();
  const clicked = [
    [heat.x, distinct(heat.x, points)[event.points[0].x]],
    [heat.y, distinct(heat.y, points)[event.points[0].y]],
  ];
  const only = ([name, found]) => choice.only.get(name)?.size === 1 && choice.only.get(name).has(found);
  if (clicked.every(only)) clicked.forEach(([name]) => choice.only.delete(name));
  else clicked.forEach(([name, found]) => choice.only.set(name, new Set([found])));
}
