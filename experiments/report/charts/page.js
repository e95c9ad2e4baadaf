// What all pages share: the page's data, elements, buttons that filter, and drawing with plotly.js.

const DATA = JSON.parse(document.getElementById("data").textContent);

// The buttons are listed one by one: plotly.js has others of its own that send a chart to a server.
const CONFIG = {
  displaylogo: false,
  responsive: true,
  plotlyServerURL: "",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
  toImageButtonOptions: { format: "svg" },
};

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// A row of buttons behind a label; choose(value) is called on a click, chosen(value) says which are pressed.
function buttons(label, values, chosen, choose, text = String) {
  const group = element("div", { className: "group" }, element("span", { textContent: label }));
  const made = values.map((value) => {
    const button = element("button", { type: "button", textContent: text(value), onclick: () => choose(value) });
    group.append(button);
    return [value, button];
  });
  const refresh = () => made.forEach(([value, button]) => button.setAttribute("aria-pressed", String(chosen(value))));
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

function draw(identity, data, layout) {
  return Plotly.react(identity, data, layout, CONFIG);
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
  const pair = ([name, value]) =>
    element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }));
  return element("dl", { className: "facts" }, ...Object.entries(facts).map(pair));
}
