// Tooltips for the words of the glossary, which is the last section of a page.

const TERMS = new Map();
for (const { cells: [words, meaning] } of document.querySelectorAll("#words tr")) {
  for (const word of words.textContent.split(", ")) TERMS.set(word.toLowerCase(), { word, meaning: meaning.textContent });
}
// Words of the glossary that also have an everyday meaning: they have a tooltip only where they are a whole label.
const EVERYDAY = new Set(["check", "cost", "file", "input", "limit", "model", "on", "output", "outputs", "point", "read", "result", "run", "share", "time", "total", "version", "where", "written"]);
const spelled = (word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const longestFirst = [...TERMS.keys()].sort((one, other) => other.length - one.length);
const WORDS = new RegExp(`(?<![\\w-])(${longestFirst.map(spelled).join("|")})s?(?![\\w-])`, "gi");

// The meaning of a label; upper and lower case, colons and marks of estimates do not matter.
function meaningOf(label) {
  return TERMS.get(label.toLowerCase().replaceAll(/[~:]/g, "").replace(/ \([^()]*\)$|, share$/, "").trim())?.meaning ?? "";
}

// The terms in a text, each once: where they begin and end, and what they mean.
function termsIn(text) {
  const seen = new Set();
  return [...text.matchAll(WORDS)].flatMap(({ 0: all, 1: word, index }) => {
    const term = TERMS.get(word.toLowerCase());
    const isName = term.word !== term.word.toLowerCase(); // CONV is a kind, conv is a layer
    if (seen.has(term.meaning) || EVERYDAY.has(term.word) || (isName && word !== term.word)) return [];
    seen.add(term.meaning);
    return [{ from: index, to: index + all.length, meaning: term.meaning }];
  });
}

// Give an element the tooltip of its text, or the words in it theirs.
function tellTerms(one) {
  if (one.title || !TERMS.size) return "";
  const whole = meaningOf(one.textContent);
  if (whole) return (one.title = whole);
  for (const node of [...one.childNodes].filter(({ nodeType }) => nodeType === Node.TEXT_NODE)) {
    let at = 0;
    const parts = [];
    for (const { from, to, meaning } of termsIn(node.data)) {
      parts.push(node.data.slice(at, from), element("abbr", { title: meaning, textContent: node.data.slice(from, to) }));
      at = to;
    }
    if (parts.length) node.replaceWith(...parts, node.data.slice(at));
  }
  return "";
}

// The same for the legend of a chart.
function tellLegend(place) {
  for (const entry of place.querySelectorAll(".legend .traces")) {
    const text = entry.querySelector(".legendtext")?.textContent ?? "";
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = meaningOf(text) || (termsIn(text)[0]?.meaning ?? "");
    if (title.textContent && !entry.querySelector("title")) entry.prepend(title);
  }
}

const LABELS = "figcaption, .note, .legend > span, section > p, summary, .pairs th, .sort, thead th:not(:has(.sort))";

addEventListener("DOMContentLoaded", () => {
  for (const one of document.querySelectorAll(`main section:not(#words) :is(${LABELS})`)) tellTerms(one);
  for (const one of document.querySelectorAll("main td:first-child")) {
    if (TERMS.get(one.textContent.toLowerCase())?.word === one.textContent) one.title = meaningOf(one.textContent);
  }
});
