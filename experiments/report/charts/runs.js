// The list of runs: fetch it again and again, and show what has changed.

const PAUSE_MILLISECONDS = 2000;

// Tables scroll sideways in a narrow window; the same table scrolls as far after it is replaced.
function show(next) {
  const main = document.querySelector("main");
  if (next.innerHTML === main.innerHTML) return;
  const focused = document.activeElement?.getAttribute("href");
  const scrolled = [...main.querySelectorAll(".wide")].map((one) => one.scrollLeft);
  main.replaceWith(next);
  [...next.querySelectorAll(".wide")].forEach((one, number) => (one.scrollLeft = scrolled[number] ?? 0));
  if (focused) [...next.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
}

async function refresh() {
  const state = document.getElementById("state");
  try {
    const answer = await fetch(location.href);
    show(new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main"));
    state.textContent = "";
  } catch {
    state.textContent = "dla serve does not answer. The list is as it was.";
  }
  setTimeout(refresh, PAUSE_MILLISECONDS);
}

setTimeout(refresh, PAUSE_MILLISECONDS);
