// How figures are written for people, as experiments/report/units.py does: sizes in powers of 1,024, all else of 1,000.

const SIZES = [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]];
const LETTERS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

function grouped(found, digits = 0) {
  return found.toLocaleString("en", { maximumFractionDigits: digits });
}

function significant(found, digits) {
  return Number(found.toPrecision(digits)).toLocaleString("en", { maximumSignificantDigits: digits });
}

function sizeText(bytes, exact = false) {
  for (const [size, name] of SIZES) {
    if (Math.abs(bytes) < size) continue;
    const share = bytes / size;
    if (!exact) return `${significant(share, 4)} ${name}`;
    if (Number(share.toFixed(2)) === share) return `${grouped(share, 2)} ${name}`;
  }
  return `${Number.isInteger(bytes) ? grouped(bytes) : significant(bytes, 4)} bytes`;
}

// A figure in few characters, for cells and axes.
function brief(found, unit = "") {
  if (unit === "bytes") return sizeText(found);
  const letter = Math.abs(found) >= 1e4 && LETTERS.find(([size]) => Math.abs(found) >= size);
  if (letter) return `${significant(found / letter[0], 3)}${letter[1]}`;
  return Number.isInteger(found) ? grouped(found) : significant(found, 3);
}

// A figure as it stands in a text: whole numbers in full.
function shown(found, unit = "", exact = true) {
  if (found === null || found === undefined) return "";
  if (typeof found !== "number") return String(found);
  if (unit === "bytes") return sizeText(found, exact);
  if (unit === "share") return `${(100 * found).toFixed(1)} %`;
  return Number.isInteger(found) ? grouped(found) : significant(found, 4);
}

// A text with its middle left out where it is too long; both ends tell layers apart.
function shortened(text, longest) {
  if (text.length <= longest) return text;
  const front = Math.floor((longest - 1) / 2);
  return `${text.slice(0, front)}…${text.slice(text.length - (longest - 1 - front))}`;
}
