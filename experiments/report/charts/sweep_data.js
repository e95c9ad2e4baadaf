// A sweep's columns, what the reader has chosen, and which points pass the filters.

const MOST_POINTS = 4000; // Points drawn at most, the front apart: of more every second, third, ...
const FRONT_COLOR = "#D55E00";

const choice = {
  network: DATA.networks.find((name) => DATA.ok.some((point) => value("network", point) === name)),
  x: DATA.x,
  y: DATA.y,
  color: DATA.color,
  only: new Map(), // column -> set of values that pass
  limits: new Map(), // column -> the worst value that passes
  picked: null,
};

function value(name, point) {
  const column = DATA.columns[name];
  return column.codes ? column.distinct[column.codes[point]] : column.values[point];
}

function wordsOf(name) {
  return DATA.columns[name].words;
}

function titleOf(name) {
  return DATA.columns[name].title;
}

function betterOrEqual(name, one, other) {
  return DATA.columns[name].more ? one >= other : one <= other;
}

// A value as people read it: of what a specification chooses every digit.
function told(name, found) {
  const { unit, codes } = DATA.columns[name];
  return found === null ? "none" : shown(found, unit, Boolean(codes));
}

// A value in few characters, for cells and ticks.
function short(name, found) {
  return typeof found === "number" ? brief(found, DATA.columns[name].unit) : told(name, found);
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
    .filter((point) => !DATA.columns.limits || value("limits", point) === "met")
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
  const axes = DATA.axes.map((name) => `${wordsOf(name)}: ${escaped(told(name, value(name, point)))}`);
  const objectives = [...new Set([choice.x, choice.y])];
  const figures = objectives.map((name) => `<b>${titleOf(name)}: ${told(name, value(name, point))}</b>`);
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

// How an axis shows a column's values: logarithmic where they are far apart, and sizes with their own units.
function axisOf(name, values, vertical = false) {
  const log = values.length > 0 && widelySpread(values);
  const size = DATA.columns[name].unit === "bytes" && values.length > 0;
  return {
    title: { text: titleOf(name), standoff: 8 },
    tickformat: extent(values)[1] < 1e4 ? ",~g" : "~s",
    ...(log ? logarithmic(values, vertical ? 2.5 : 2) : { rangemode: "tozero" }),
    ...(size ? sizeTicks(extent(values), log) : {}),
  };
}

// Labels that do not meet: 1, 2 and 5 of each decade, or the decades where there are many.
function logarithmic(values, narrow) {
  const [low, high] = extent(values);
  const decades = Math.log10(high / low);
  return { type: "log", dtick: decades < (innerWidth < NARROW ? narrow : 2.5) ? "D2" : 1, minor: { ticks: "outside" } };
}

// Powers of two, or whole multiples of one, six or seven of them.
function sizeTicks([low, high], log) {
  const tickvals = [];
  if (log) {
    const [first, last] = [Math.floor(Math.log2(low)), Math.ceil(Math.log2(high))];
    const step = Math.max(1, Math.ceil((last - first) / 6));
    for (let power = Math.ceil(first / step) * step; power <= last; power += step) tickvals.push(2 ** power);
  } else {
    const step = 2 ** Math.ceil(Math.log2(Math.max(high, 1) / 6));
    for (let at = 0; at <= high + step; at += step) tickvals.push(at);
  }
  return { tickmode: "array", tickvals, ticktext: tickvals.map((found) => sizeText(found)) };
}

// The command that runs a point alone; empty where the preset can no longer be read.
function commandOf(point) {
  if (DATA.runs.length) return DATA.runs[point];
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
