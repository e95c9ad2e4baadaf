// The network as a graph: a box for each node, which zooms, scrolls, is searched, and is walked through with arrow keys.

const [BOX_WIDTH, BOX_HEIGHT] = [180, 66];
const [COLUMN_WIDTH, LANE_HEIGHT] = [216, 84];
const GRAPH_MARGIN = 18;
const ZOOMS = [0.05, 4]; // The least and the greatest.
const LEAST_READABLE = 0.55; // Zoom below which boxes have no text.
const LONGEST_NAME = 25;
const STRIP_COLUMNS = 4; // What fits on paper side by side.

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Colours of the page stand for black and white, so that boxes follow its dark mode.
function painted(color) {
  return INKS[color] ? `var(${INKS[color]})` : color;
}

function networkGraph(place, { boxes, lines }) {
  const state = { zoom: 1, current: null, words: "" };
  const left = (column) => GRAPH_MARGIN + column * COLUMN_WIDTH;
  const middle = (lane) => GRAPH_MARGIN + lane * LANE_HEIGHT + BOX_HEIGHT / 2;
  const width = left(1 + Math.max(...boxes.map(({ column }) => column))) - COLUMN_WIDTH + BOX_WIDTH + GRAPH_MARGIN;
  const height = middle(Math.max(...boxes.map(({ lane }) => lane), ...lines.map(({ lane }) => lane))) + BOX_HEIGHT / 2 + GRAPH_MARGIN;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}` });
  const view = element("div", { className: "graph", tabIndex: 0 }, drawing);
  view.setAttribute("role", "application");
  view.setAttribute("aria-label", "graph of the network: arrow keys go from node to node, Enter chooses a layer, + and - zoom");
  const status = element("p", { className: "note" });
  status.setAttribute("role", "status");
  const made = boxes.map(drawBox);

  function tipOf({ name, kind, text, parts, tip, group }) {
    const waits = parts.map(([part, cycles]) => `${part}: ${grouped(cycles)} cycles`);
    const fused = group === null ? [] : [`fused in bands with group ${group}`];
    return [name, kind, ...(text ? [text] : []), ...waits, ...fused, ...tip];
  }

  function drawBox(box) {
    const { name, kind, on, column, lane, text, parts, color } = box;
    const made = svg("g", { class: `box ${on || "port"}`, transform: `translate(${left(column)} ${middle(lane) - BOX_HEIGHT / 2})` });
    const line = (content, y, style) => {
      const found = svg("text", { x: 14, y, class: style });
      found.textContent = content;
      return found;
    };
    const title = svg("title");
    title.textContent = tipOf(box).join("\n");
    const stripe = svg("rect", { x: 1, y: 6, width: 6, height: BOX_HEIGHT - 12 });
    stripe.style.fill = painted(color);
    made.append(title, svg("rect", { class: "body", width: BOX_WIDTH, height: BOX_HEIGHT, rx: on ? 4 : 20 }), ...(on ? [stripe] : []));
    made.append(line(shortened(name, LONGEST_NAME), 19, "name"), line(shortened(kind, 29), 35, ""), line(text, 51, ""));
    const sum = parts.reduce((all, [, cycles]) => all + cycles, 0);
    let at = 14;
    for (const [, cycles, part] of parts) {
      const share = ((BOX_WIDTH - 26) * cycles) / sum;
      const bar = svg("rect", { x: at, y: 56, width: share, height: 6 });
      bar.style.fill = painted(part);
      made.append(bar);
      at += share;
    }
    return made;
  }

  // A line leaves a box on the right, passes other columns in its lane, and enters the next box on the left.
  function pathOf({ from, to, lane }) {
    const [start, end] = [boxes[from], boxes[to]];
    const stops = [[left(start.column) + BOX_WIDTH, middle(start.lane)]];
    if (end.column - start.column > 1) {
      stops.push([left(start.column + 1), middle(lane)], [left(end.column - 1) + BOX_WIDTH, middle(lane)]);
    }
    stops.push([left(end.column), middle(end.lane)]);
    const bend = (COLUMN_WIDTH - BOX_WIDTH) / 2;
    return stops.slice(1).reduce((path, [x, y], number) => {
      const [before, height] = stops[number];
      return `${path} ${height === y ? `H ${x}` : `C ${before + bend} ${height} ${x - bend} ${y} ${x} ${y}`}`;
    }, `M ${stops[0].join(" ")}`);
  }

  // A fused group has one ground: behind its boxes, and between two of them.
  function grounds() {
    const members = boxes.filter(({ group }) => group !== null);
    const around = ({ column, lane, group }) => svg("rect", {
      class: `fused shade${group % 2}`, rx: 8, x: left(column) - 8, y: middle(lane) - BOX_HEIGHT / 2 - 8,
      width: BOX_WIDTH + 16, height: BOX_HEIGHT + 16,
    });
    const within = lines.filter(({ from, to }) => boxes[from].group !== null && boxes[from].group === boxes[to].group);
    const between = (line) => svg("path", { class: `link shade${boxes[line.from].group % 2}`, d: pathOf(line) });
    return [
      ...within.map((line) => ({ drawn: between(line), ...reachOf(line) })),
      ...members.map((box) => ({ drawn: around(box), first: box.column, last: box.column, lanes: [box.lane] })),
    ];
  }

  function reachOf({ from, to, lane }) {
    const lanes = [boxes[from].lane, lane, boxes[to].lane];
    return { first: boxes[from].column, last: boxes[to].column, lanes };
  }

  // Paper does not scroll: there the graph is in strips of a few columns, one below the other.
  function stripsOf(pieces) {
    const strips = [];
    for (let column = 0; pieces.some(({ last }) => last >= column); column += STRIP_COLUMNS) {
      const found = pieces.filter(({ first, last }) => first < column + STRIP_COLUMNS && last >= column);
      const lanes = found.flatMap((piece) => piece.lanes);
      const [top, below] = [middle(Math.min(...lanes)), middle(Math.max(...lanes))];
      const high = below - top + BOX_HEIGHT + 2 * GRAPH_MARGIN;
      const area = `${left(column) - GRAPH_MARGIN} ${top - BOX_HEIGHT / 2 - GRAPH_MARGIN} ${STRIP_COLUMNS * COLUMN_WIDTH} ${high}`;
      strips.push(svg("svg", { viewBox: area, class: "strip" }, ...found.map(({ drawn }) => drawn.cloneNode(true))));
    }
    return element("div", { className: "graph strips" }, ...strips);
  }

  function drawLine(line) {
    const made = svg("path", { class: "line", d: pathOf(line) });
    const title = svg("title");
    title.textContent = line.tip;
    made.append(title);
    return made;
  }

  function zoomTo(zoom, keep = view.clientWidth / 2) {
    const middle = (view.scrollLeft + keep) / state.zoom;
    const above = (view.scrollTop + view.clientHeight / 2) / state.zoom;
    state.zoom = Math.min(ZOOMS[1], Math.max(ZOOMS[0], zoom));
    drawing.style.width = `${width * state.zoom}px`;
    drawing.style.height = `${height * state.zoom}px`;
    view.classList.toggle("far", state.zoom < LEAST_READABLE);
    view.scrollLeft = middle * state.zoom - keep;
    view.scrollTop = above * state.zoom - view.clientHeight / 2;
  }

  function whole() {
    zoomTo(Math.min(1, (view.clientWidth - 2) / width, 500 / height));
  }

  // Go to a node: mark it, bring it into view, and tell what it is.
  function goTo(number) {
    made[state.current]?.classList.remove("current");
    state.current = number;
    made[number].classList.add("current");
    const { column, lane } = boxes[number];
    const [x, y] = [left(column) * state.zoom, (middle(lane) - BOX_HEIGHT / 2) * state.zoom];
    const spare = COLUMN_WIDTH - BOX_WIDTH;
    if (x < view.scrollLeft || x + BOX_WIDTH * state.zoom > view.scrollLeft + view.clientWidth) view.scrollLeft = x - spare;
    if (y < view.scrollTop || y + BOX_HEIGHT * state.zoom > view.scrollTop + view.clientHeight) view.scrollTop = y - spare;
    status.textContent = tipOf(boxes[number]).join("; ");
  }

  function nearest(numbers) {
    const { column, lane } = boxes[state.current];
    const far = (number) => Math.abs(boxes[number].lane - lane) + Math.abs(boxes[number].column - column);
    return numbers.sort((one, other) => far(one) - far(other) || one - other)[0];
  }

  function neighbour(key) {
    const numbers = boxes.map((_, number) => number);
    const { column, lane } = boxes[state.current];
    if (key === "ArrowRight") return nearest(lines.filter(({ from }) => from === state.current).map(({ to }) => to));
    if (key === "ArrowLeft") return nearest(lines.filter(({ to }) => to === state.current).map(({ from }) => from));
    if (key === "Home") return 0;
    if (key === "End") return boxes.length - 1;
    const down = { ArrowDown: 1, ArrowUp: -1 }[key];
    return down && nearest(numbers.filter((one) => boxes[one].column === column && (boxes[one].lane - lane) * down > 0));
  }

  function pick(number) {
    goTo(number);
    if (boxes[number].layer >= 0) choose(boxes[number].layer);
  }

  const zooms = { "+": 1.25, "=": 1.25, "-": 0.8 };

  view.onkeydown = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (zooms[event.key]) zoomTo(state.zoom * zooms[event.key]);
    else if (event.key === "0") whole();
    else if (event.key === "Enter" && state.current !== null) pick(state.current);
    else if (/^(Arrow|Home|End)/.test(event.key)) goTo(state.current === null ? 0 : neighbour(event.key) ?? state.current);
    else return;
    event.preventDefault();
  };
  view.onwheel = (event) => {
    if (!event.ctrlKey) return; // else the page scrolls
    event.preventDefault();
    zoomTo(state.zoom * (event.deltaY < 0 ? 1.25 : 0.8), event.clientX - view.getBoundingClientRect().left);
  };
  let held = null;
  view.onpointerdown = ({ clientX, clientY, button }) => {
    if (button === 0) held = { x: clientX + view.scrollLeft, y: clientY + view.scrollTop, from: clientX, moved: false };
  };
  view.onpointermove = ({ clientX, clientY, buttons }) => {
    if (!buttons) held = null;
    if (!held) return;
    held.moved ||= Math.abs(clientX - held.from) > 4;
    if (held.moved) [view.scrollLeft, view.scrollTop] = [held.x - clientX, held.y - clientY];
  };
  drawing.addEventListener("click", ({ target }) => {
    const found = made.indexOf(target.closest(".box"));
    if (found >= 0 && !held?.moved) pick(found);
  });

  // Nodes whose name or kind has the words stand out; Enter goes to the next of them.
  function search(words) {
    state.words = words.trim().toLowerCase();
    const found = boxes.map(({ name, kind }) => state.words && `${name} ${kind}`.toLowerCase().includes(state.words));
    view.classList.toggle("searching", Boolean(state.words));
    made.forEach((one, number) => one.classList.toggle("match", Boolean(found[number])));
    const numbers = [...found.keys()].filter((number) => found[number]);
    status.textContent = state.words ? `${grouped(numbers.length)} of ${grouped(boxes.length)} nodes` : "";
    return numbers;
  }
  const next = () => {
    const numbers = search(state.words);
    if (!numbers.length) return;
    const number = numbers.find((one) => state.current !== null && one > state.current) ?? numbers[0];
    goTo(number);
    status.textContent = `${numbers.indexOf(number) + 1} of ${numbers.length}: ${status.textContent}`;
  };
  const named = field("find", "graph-search", (words) => search(words), { type: "search", placeholder: "node" });
  named.addEventListener("keydown", ({ key }) => key === "Enter" && next());
  const ways = [["zoom in", () => zoomTo(state.zoom * 1.25)], ["zoom out", () => zoomTo(state.zoom * 0.8)],
    ["whole graph", whole], ["full size", () => zoomTo(1)]];
  const zoom = element("div", { className: "group" }, ...ways.map(([text, act]) => button(text, act)));
  const colors = new Map(boxes.flatMap(({ parts }) => parts.map(([part, , color]) => [part, color])));
  const legend = element("p", { className: "note legend" }, ...[...colors].map(([part, color]) => {
    const sample = element("span", { className: "sample" });
    sample.style.background = painted(color);
    return element("span", {}, sample, part);
  }));
  const pieces = [
    ...grounds(),
    ...lines.map((line) => ({ drawn: drawLine(line), ...reachOf(line) })),
    ...made.map((drawn, number) => ({ drawn, first: boxes[number].column, last: boxes[number].column, lanes: [boxes[number].lane] })),
  ];
  drawing.append(...pieces.map(({ drawn }) => drawn));
  addEventListener("beforeprint", () => view.after(stripsOf(pieces)));
  addEventListener("afterprint", () => place.querySelector(".strips")?.remove());
  place.append(element("div", { className: "choices" }, zoom, named, button("next", next)), legend, view, status);
  for (const one of drawing.querySelectorAll("text")) { // wide letters
    const most = BOX_WIDTH - 26;
    if (one.textContent.length > 20 && one.getComputedTextLength() > most) {
      one.setAttribute("textLength", most);
      one.setAttribute("lengthAdjust", "spacingAndGlyphs");
    }
  }
  zoomTo(1);
  view.scrollLeft = 0;
  view.scrollTop = 0;
  return { refresh: (layer) => made.forEach((one, number) => one.classList.toggle("picked", boxes[number].layer >= 0 && boxes[number].layer === layer)) };
}
