// A sweep's columns, what the reader has chosen, and which points pass the filters.

const MOST_POINTS = 4000; // Points drawn at most, the front apart: of more every second, third, ...
const FRONT_COLOR = "#D55E00";

const choice = {
  network: DATA.networks.find((name) => DATA.ok.some((point) => value("network", point) === name)),
  x: DATA.x,
  y: DATA.y,
  color: DATA.axes[0] ?? "",
  only: new Map(), // column -> set of values that pass
  limits: new Map(), // column -> the worst value that passes
  picked: null,
};

function value(name, point) {
  const column = DATA.columns[name];
  return column.codes ? column.distinct[column.codes[point]] : column.values[point];
}

function titleOf(name) {
  return DATA.columns[name].title;
}

function betterOrEqual(name, one, other) {
  return DATA.columns[name].more ? one >= other : one <= other;
}

// A value as people read it.
function shown(name, found) {
  if (found === null) return "none";
  if (typeof found !== "number") return String(found);
  if (name === "sram_bytes" && found % 1024 === 0) {
    return found % 1048576 === 0 ? `${found / 1048576} MiB` : `${found / 1024} KiB`;
  }
  return Number.isInteger(found) ? found.toLocaleString("en") : String(Number(found.toPrecision(4)));
}

// A value in few characters, for cells and ticks.
function brief(name, found) {
  if (typeof found !== "number" || name === "sram_bytes" || Math.abs(found) < 10000) return shown(name, found);
  const [size, letter] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([limit]) => Math.abs(found) >= limit);
  return `${Number((found / size).toPrecision(3))}${letter}`;
}

function passesAxes(point) {
  if (value("network", point) !== choice.network) return false;
  return [...choice.only].every(([name, values]) => values.has(value(name, point)));
}

function passes(point) {
  const within = ([name, limit]) => betterOrEqual(name, value(name, point), limit);
  return passesAxes(point) && [...choice.limits].every(within);
}

// Points that ended ok and pass every filter.
function passing() {
  return DATA.ok.filter(passes);
}

// Those of the points that none of them beats in x and y, by x.
function frontOf(points) {
  const [signX, signY] = [choice.x, choice.y].map((name) => (DATA.columns[name].more ? -1 : 1));
  const ranked = points
    .map((point) => [signX * value(choice.x, point), signY * value(choice.y, point), point])
    .sort((one, other) => one[0] - other[0] || one[1] - other[1] || one[2] - other[2]);
  let best = Infinity;
  const front = [];
  for (const [, height, point] of ranked) {
    if (height < best) {
      front.push(point);
      best = height;
    }
  }
  return front;
}

function thinned(points, most) {
  const step = Math.ceil(points.length / most);
  return step > 1 ? points.filter((_, index) => index % step === 0) : points;
}

function described(point) {
  const axes = DATA.axes.map((name) => `${name}: ${escaped(shown(name, value(name, point)))}`);
  const objectives = [...new Set([choice.x, choice.y])];
  const figures = objectives.map((name) => `<b>${titleOf(name)}: ${shown(name, value(name, point))}</b>`);
  return [...figures, ...axes].join("<br>");
}

function distinct(name, points) {
  const column = DATA.columns[name];
  const codes = new Set(points.map((point) => column.codes[point]));
  return [...codes].sort((one, other) => one - other).map((code) => column.distinct[code]);
}

function widelySpread(values) {
  const [low, high] = extent(values);
  return low > 0 && high / low > 30;
}

// A logarithmic axis with labels that do not meet: 1, 2 and 5 of each decade, or the decades where there are many.
function logarithmic(values) {
  const [low, high] = extent(values);
  const decades = Math.log10(high / low);
  return { type: "log", dtick: decades < 2.5 ? "D2" : 1, minor: { ticks: "outside" } };
}

// The command that runs a point alone; empty where the preset can no longer be read.
function commandOf(point) {
  const of = (name) => (name in DATA.columns ? value(name, point) : DATA.commands.constant[name]);
  const preset = DATA.commands.presets[of("preset")];
  if (!preset) return "";
  const words = ["dla", "run", of("network"), "--preset", of("preset")];
  for (const [name, { word, usual }] of Object.entries(DATA.commands.choices)) {
    const found = of(name) ?? usual;
    if (found !== usual) words.push(`--${word}`, ...(found === true ? [] : [found]));
  }
  for (const [key, usual] of Object.entries(preset)) {
    const found = of(key);
    if (found === usual || found === undefined) continue;
    if (key === "isa") words.push("--isa", found);
    else words.push("--set", `${key}=${found === null ? "none" : found}`);
  }
  words.push(...DATA.commands.options);
  const quoted = (word) => `'${String(word).replaceAll("'", "'\\''")}'`;
  return words.map((word) => (/^[\w.\/=:,-]+$/.test(word) ? word : quoted(word))).join(" ");
}
