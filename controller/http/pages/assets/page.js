// Pages work without this script. With it they follow the log, and show times as how long ago.
"use strict";

const REFRESH_EVERY_MS = 2000;
const STRIP_EVERY_MS = 6000; // the service draws the strip every 5 s at most
const TRY_AGAIN_MS = 5000;

// --- what happens: a page that is followed is loaded anew, and what is marked as live takes the place of what it was

const follow = document.body.dataset.follow;
const lost = document.getElementById("lost");
let source = null;
let isDue = false;
let refreshed = 0;
let last = 0;

function listen() {
  source = new EventSource(follow);
  source.onopen = () => {
    document.body.classList.add("following");
    document.getElementById("live").textContent = ", live";
    if (!lost.hidden) {
      lost.hidden = true;
      refreshSoon();
    }
  };
  source.onmessage = refreshSoon;
  source.onerror = () => {
    document.body.classList.remove("following");
    document.getElementById("live").textContent = "";
    if (lost.hidden) {
      lost.querySelector("span").textContent = new Date().toISOString();
      lost.hidden = false;
    }
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, TRY_AGAIN_MS);
  };
}

function refreshSoon() {
  if (isDue || document.hidden) return;
  isDue = true;
  setTimeout(refresh, Math.max(100, refreshed + REFRESH_EVERY_MS - Date.now()));
  clearTimeout(last);
  last = setTimeout(refresh, STRIP_EVERY_MS);
}

async function refresh() {
  isDue = false;
  refreshed = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.ok) replaceLive(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // the server went away; the source of events says so, and loads the page again when it is back
  }
}

const received = new Map([...document.querySelectorAll("[data-live]")].map((one) => [one.id, one.innerHTML]));

function replaceLive(fresh) {
  for (const now of document.querySelectorAll("[data-live]")) {
    const then = fresh.getElementById(now.id);
    if (!then || received.get(now.id) === then.innerHTML || now.contains(document.activeElement)) continue;
    received.set(now.id, then.innerHTML);
    const open = new Set([...now.querySelectorAll("details[open]")].map((one) => one.id));
    now.replaceChildren(...then.childNodes);
    for (const one of now.querySelectorAll("details")) one.open = open.has(one.id);
  }
  showTimes();
}

if (follow) {
  listen();
  document.addEventListener("visibilitychange", refreshSoon);
  addEventListener("pagehide", () => source.close());
  addEventListener("pageshow", (event) => event.persisted && listen());
}

// --- an answer that does not count all topics yet is loaded again until it does

function countOn() {
  if (document.querySelector("[data-counting]")) setTimeout(() => refresh().then(countOn), 100);
}

countOn();

// --- times: how long ago, local, or UTC, as the button says; the others on hover

const WAYS = ["ago", "local", "UTC"];
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
const button = document.getElementById("times");
let way = localStorage.getItem("times") ?? WAYS[0];

function ago(at) {
  const s = Math.round((Date.now() - at) / 1000);
  const [unit, size] = UNITS.find((one) => Math.abs(s) >= one[1]) ?? UNITS[3];
  return s < 0 ? `in ${Math.round(-s / size)} ${unit}` : `${Math.round(s / size)} ${unit} ago`;
}

function showTimes(root = document) {
  for (const one of root.querySelectorAll("time[datetime]")) {
    const at = new Date(one.dateTime);
    const exact = { ago: ago(at), local: at.toLocaleString("sv-SE"), UTC: `${one.dateTime.slice(0, 19)}Z` };
    one.title = `${one.dateTime}, ${exact.local} local, ${exact.ago}`;
    if (one.closest(".axis:not(.long)")) exact.ago = exact.local.slice(11); // else all may be "3 d ago"
    if (one.matches(".clock")) exact.ago = exact.local; // within a sentence
    one.textContent = exact[way] ?? exact.ago;
  }
  button.textContent = `Times: ${way}`;
}

button.hidden = false;
button.addEventListener("click", () => {
  way = WAYS[(WAYS.indexOf(way) + 1) % WAYS.length];
  localStorage.setItem("times", way);
  showTimes();
});
showTimes();
