// What all pages share: the page's data, elements, buttons that filter, and drawing with plotly.js.

const DATA = JSON.parse(document.getElementById("data").textContent);
const BUTTONS_PIXELS = 32; // What plotly.js' buttons take above a chart.
const NARROW = 700; // Pixels of a window below which names on axes are shorter.

// The buttons are listed one by one: plotly.js has others of its own that send a chart to a server.
const CONFIG = {
  displaylogo: false,
  displayModeBar: true,
  plotlyServerURL: "",
  modeBarButtons: [["zoom2d", "pan2d", "resetScale2d"]],
};

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function button(text, onclick, properties = {}) {
  return element("button", { type: "button", textContent: text, onclick, ...properties });
}

// A row of buttons behind a label; choose(value) is called on a click, chosen(value) says which are pressed.
function buttons(label, values, chosen, choose, text = String) {
  const group = element("div", { className: "group" }, element("span", { textContent: label }));
  group.setAttribute("role", "group");
  group.setAttribute("aria-label", label);
  const made = values.map((value) => {
    const one = button(text(value), () => choose(value));
    group.append(one);
    return [value, one];
  });
  const refresh = () => made.forEach(([value, one]) => one.setAttribute("aria-pressed", String(chosen(value))));
  refresh();
  return { group, refresh };
}

// A labelled list to choose from; choose(value) is called on a change.
function chooser(label, identity, options, current, choose) {
  const list = element("select", { id: identity, onchange: () => choose(list.value) });
  for (const [value, text] of options) list.append(element("option", { value, textContent: text }));
  list.value = current;
  return element("label", { className: "group" }, element("span", { textContent: label }), list);
}

// A labelled field for text; typed(value) is called on every change.
function field(label, identity, typed, properties = {}) {
  const input = element("input", { id: identity, oninput: () => typed(input.value), ...properties });
  return element("label", { className: "group" }, element("span", { textContent: label }), input);
}

// Something to do once plotly.js is there; in this order. A page without charts does not wait for it.
const starts = [];

function whenDrawable(start) {
  starts.push(start);
}

async function unpack() {
  const packed = Uint8Array.from(atob(document.getElementById("plotly").textContent), (found) => found.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  document.head.append(element("script", { textContent: await new Response(stream).text() }));
  starts.forEach((start) => start());
  document.documentElement.dataset.drawn = "yes";
}

addEventListener("DOMContentLoaded", unpack);

// Everything to draw anew when the window's width changes.
const redraws = [];
let drawnWidth = innerWidth;

addEventListener("resize", () => {
  if (innerWidth === drawnWidth || !document.documentElement.dataset.drawn) return;
  drawnWidth = innerWidth;
  redraws.forEach((redraw) => redraw());
});

// Paper is narrower than most windows: charts are drawn for its width, and for the screen again afterwards.
const PAPER_WIDTH = "700px";

for (const [event, width] of [["beforeprint", PAPER_WIDTH], ["afterprint", ""]]) {
  addEventListener(event, () => {
    document.body.style.width = width;
    redraws.forEach((redraw) => redraw());
  });
}

// Charts have the colours of the page: dark on a dark screen, light on paper.
const INKS = { "#000000": "--text", "#FFFFFF": "--ground", "#E5E5E5": "--grid", "#DDDDDD": "--line", "#F2F2F2": "--grid", "#595959": "--quiet" };

const darkScreen = matchMedia("screen and (prefers-color-scheme: dark)");

darkScreen.addEventListener("change", () => {
  if (document.documentElement.dataset.drawn) redraws.forEach((redraw) => redraw());
});

// A figure of plotly.js with the page's colours for black, white and grey. Text on a bar keeps its colour with the bar's.
function inked(found, style = getComputedStyle(document.documentElement)) {
  if (typeof found === "string") return INKS[found] ? style.getPropertyValue(INKS[found]).trim() : found;
  if (!found || typeof found !== "object" || typeof found[0] === "number") return found;
  if (Array.isArray(found)) return found.map((one) => inked(one, style));
  const kept = found.textfont && !INKS[found.marker?.color] ? { textfont: found.textfont } : {};
  return { ...Object.fromEntries(Object.entries(found).map(([key, one]) => [key, inked(one, style)])), ...kept };
}

const LEGEND_PIXELS = 7.4; // A character of a legend.
const MOST_TURNS = 4; // What is around a plot depends on the plot: draw until both agree.
const TITLE_PIXELS = 8.6; // A character of an axis' title.
const fitted = new Map(); // What each chart had around its plot when it was drawn last: mostly the same.

// Draw a chart, its plot as high as the layout says: the legend has what height it needs above it, and plotly.js' buttons
// have theirs above the legend. A chart of at least so many pixels scrolls where the page has less.
function draw(identity, data, layout, title, least = 0) {
  const place = document.getElementById(identity);
  const heading = document.getElementById(`${identity}-title`);
  if (title !== undefined) heading.textContent = title;
  place.style.zoom = "";
  const width = Math.max(place.clientWidth, least);
  const scrolls = width > place.clientWidth;
  const paper = matchMedia("print").matches || document.body.style.width === PAPER_WIDTH; // It does not scroll.
  if (paper && scrolls) place.style.zoom = place.clientWidth / width;
  place.classList.toggle("wide", scrolls);
  place.tabIndex = scrolls ? 0 : -1;
  const named = (trace) => (trace.name ? { ...trace, name: folded(trace.name, (width - 70) / LEGEND_PIXELS) } : trace);
  const traces = inked(data).map(named);
  const { t: top, b: below } = layout.margin;
  const height = layout.height - top - below;
  const config = { ...CONFIG, modeBarButtons: [[saving(heading.textContent)], ...CONFIG.modeBarButtons] };
  let around = fitted.get(identity) ?? { above: top, below, plot: width - 160 };
  for (let turn = 0; turn < MOST_TURNS; turn += 1) {
    const drawn = inked(fittingLayout(layout, width, height, around));
    if (turn === 0) Plotly.react(place, traces, drawn, config);
    else Plotly.relayout(place, changesOf(drawn));
    const { showlegend, legend, _size: size } = place._fullLayout;
    const above = BUTTONS_PIXELS + (showlegend && legend._height ? legend._height : 0);
    around = { above, below: size.b, plot: size.w };
    const fits = Math.abs(size.h - height) <= 1 && size.t === above;
    if (fits && titlesOf(drawn) === titlesOf(fittingLayout(layout, width, height, around))) break;
  }
  fitted.set(identity, around);
  tellLegend(place);
}

function changesOf({ height, margin, xaxis, yaxis }) {
  const titles = Object.entries({ xaxis, yaxis }).filter(([, { title }]) => title);
  return {
    height,
    "margin.t": margin.t,
    ...Object.fromEntries(titles.map(([axis, { title }]) => [`${axis}.title.text`, title.text])),
  };
}

function titlesOf({ xaxis, yaxis }) {
  return `${xaxis.title?.text}/${yaxis.title?.text}`;
}

// The layout of a chart whose plot is so high, with this around it, and titles of axes in lines that are no longer.
function fittingLayout(layout, width, height, { above, below, plot }) {
  const titled = (axis, length) => {
    const { title } = layout[axis];
    return title ? { ...layout[axis], title: { ...title, text: folded(title.text, length / TITLE_PIXELS) } } : layout[axis];
  };
  return {
    ...layout,
    width,
    height: height + above + below,
    margin: { ...layout.margin, t: above },
    xaxis: titled("xaxis", plot),
    yaxis: titled("yaxis", height),
  };
}

// A text in lines of at most so many characters where its words allow that.
function folded(text, most) {
  const lines = [];
  for (const word of text.split(" ")) {
    if (lines.length && `${lines.at(-1)} ${word}`.length <= most) lines[lines.length - 1] += ` ${word}`;
    else lines.push(word);
  }
  return lines.join("<br>");
}

// The button that saves a chart, with its title, which is not part of it on the page.
function saving(title) {
  const save = (place) => {
    const margin = { ...place.layout.margin, t: place.layout.margin.t + 20 };
    const layout = { ...place.layout, margin, title: { text: escaped(title), x: 0, xref: "container", y: 0.98 } };
    const picture = { format: "svg", filename: title, width: place._fullLayout.width, height: place._fullLayout.height + 20 };
    Plotly.downloadImage({ data: place.data, layout: { ...layout, height: picture.height } }, picture);
  };
  return { name: "save", title: "Download plot", icon: Plotly.Icons.camera, click: save };
}

// A copy of a plotly layout that may be changed without changing the original.
function copy(value) {
  return JSON.parse(JSON.stringify(value));
}

// The least and the greatest of any number of values.
function extent(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const found of values) {
    if (found < low) low = found;
    if (found > high) high = found;
  }
  return [low, high];
}

// A text as plotly.js shows it unchanged: it knows a few elements of HTML.
function escaped(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

// A value added to a set, or taken out where it was in it.
function toggle(set, value) {
  if (!set.delete(value)) set.add(value);
}

function factsList(facts) {
  const pair = ([name, value]) => {
    const term = element("dt", { textContent: name });
    tellTerms(term);
    return element("div", {}, term, element("dd", { textContent: value }));
  };
  return element("dl", { className: "facts" }, ...facts.map(pair));
}
