// The page of a sweep: filters for all charts, and everything about a point that is clicked.

const MOST_BUTTONS = 24; // An axis with more values has a list instead.
const refreshers = [];

function pick(point) {
  choice.picked = point === choice.picked ? null : point;
  update();
}

function showPicked() {
  const place = document.getElementById("chosen");
  place.hidden = choice.picked === null;
  if (place.hidden) return;
  const names = [...DATA.axes, ...DATA.figures.filter((name) => !DATA.axes.includes(name))];
  const facts = names.map((name) => [titleOf(name), told(name, value(name, choice.picked))]);
  const close = button("close", () => pick(choice.picked));
  const heading = element("h3", { textContent: `Point ${DATA.keys[choice.picked].slice(0, 16)} of ${choice.network}` });
  const command = element("p", {}, element("code", { textContent: commandOf(choice.picked) }));
  place.replaceChildren(close, heading, command, factsList(facts));
}

// What is filtered by, each with a button that undoes it.
function showFilters() {
  const place = document.getElementById("active");
  const undo = (text, remove) => button(`${text} ×`, () => (remove(), update()));
  const made = [];
  for (const [name, limit] of choice.limits) {
    const relation = DATA.columns[name].more ? "≥" : "≤";
    made.push(undo(`${wordsOf(name)} ${relation} ${told(name, limit)}`, () => choice.limits.delete(name)));
  }
  for (const [name, values] of choice.only) {
    const text = [...values].map((found) => told(name, found)).join(", ");
    made.push(undo(`${wordsOf(name)}: ${text}`, () => choice.only.delete(name)));
  }
  if (made.length) made.push(undo("clear all", () => (choice.only.clear(), choice.limits.clear())));
  place.replaceChildren(...made);
}

function update() {
  const points = passing();
  const front = frontOf(points);
  refreshers.forEach((refresh) => refresh());
  const all = DATA.ok.filter((point) => value("network", point) === choice.network).length;
  const [kept, whole] = [points.length, all].map((count) => count.toLocaleString("en"));
  document.getElementById("count").textContent = `${kept} of ${whole} points`;
  showFilters();
  showPicked();
  drawPareto(points, front);
  listFront(points, front);
  drawHeatmap();
  drawParallel(points, front);
}

function toggleValue(name, found) {
  if (!choice.only.has(name)) choice.only.set(name, new Set());
  toggle(choice.only.get(name), found);
  if (!choice.only.get(name).size) choice.only.delete(name);
  update();
}

function addFilters() {
  const tools = document.getElementById("tools");
  if (DATA.networks.length > 1) {
    const networks = buttons("network", DATA.networks, (name) => choice.network === name, (name) => {
      Object.assign(choice, { network: name, picked: null });
      choice.limits.clear();
      update();
    });
    tools.append(networks.group);
    refreshers.push(networks.refresh);
  }
  for (const name of DATA.axes) {
    const values = DATA.columns[name].distinct;
    if (values.length > MOST_BUTTONS) {
      const options = values.map((found, number) => [String(number), told(name, found)]);
      tools.append(chooser(wordsOf(name), `filter-${name}`, [["", "keep …"], ...options], "", (number) => {
        if (number !== "") toggleValue(name, values[Number(number)]);
      }));
      continue;
    }
    const pressed = (found) => choice.only.get(name)?.has(found) ?? false;
    const group = buttons(wordsOf(name), values, pressed, (found) => toggleValue(name, found), (found) => told(name, found));
    group.group.id = `filter-${name}`;
    tools.append(group.group);
    refreshers.push(group.refresh);
  }
  const count = element("span", { id: "count", className: "note" });
  count.setAttribute("role", "status");
  tools.append(count);
  tools.append(element("span", { id: "active", className: "group" }));
}

addFilters();
[paretoChoices, heatmapChoices, parallelChoices].forEach((add) => add(update));
addFront(pick);
redraws.push(update);
whenDrawable(() => {
  update();
  document.getElementById("pareto").on("plotly_click", (event) => pick(event.points[0].customdata));
  document.getElementById("heatmap").on("plotly_click", (event) => (chooseCell(event), update()));
  document.getElementById("parallel").on("plotly_click", (event) => (chooseOnAxis(event), update()));
});
