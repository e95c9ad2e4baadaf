// Pages of systems: the table of tasks, charts, and the timeline of units.

dataTable(document.getElementById("task-table"), {
  name: "tasks",
  columns: DATA.table.columns,
  rows: () => DATA.table.rows,
});

function drawFigure(figure) {
  if (figure.time) return drawTimed(figure);
  const layout = copy(figure.layout);
  const names = layout.yaxis.ticktext;
  if (names && innerWidth < NARROW) layout.yaxis.ticktext = names.map((name) => shortened(name, 16));
  return draw(figure.id, figure.data, layout);
}

const drawAll = () => DATA.figures.forEach(drawFigure);
const timeline = DATA.figures.find((figure) => figure.rows);
if (timeline) addGanttTools(timeline);
redraws.push(drawAll);
whenDrawable(() => {
  drawAll();
  startTimed();
});
