// Everything works without this. With it pages renew themselves when something moved, ages go on
// counting, the arrow keys walk over the fleet, and a theme can be chosen.
"use strict";

const QUIET = 15_000; // charts and ages move even when nothing else does
const LEAST = 1_500; // a person reads no faster
const GRACE = 4_000; // a stream that its server ended is open again at another one two seconds later
const SILENT = 25_000; // something is heard every eleven seconds
const RETRY = 5_000;
const PATIENCE = 15_000; // a page is made in milliseconds, or given up by the server after some seconds
const SHARE = 150; // for each who watches: together they ask for seven pages a second at most

const root = document.documentElement;
const main = document.getElementById("main");
const skew = Date.now() - Date.parse(document.querySelector('meta[name="paddock-now"]').content);

// Themes: automatic, light, dark. The server is told by a cookie, so that no page flickers.
const themes = ["auto", "light", "dark"];
const themeSwitch = document.querySelector("[data-theme-switch]");
function showTheme(theme) {
  if (theme === "auto") delete root.dataset.theme;
  else root.dataset.theme = theme;
  themeSwitch.querySelector("[data-theme-says]").textContent = theme;
}
themeSwitch.hidden = false;
showTheme(root.dataset.theme || "auto");
themeSwitch.addEventListener("click", () => {
  const theme = themes[(themes.indexOf(root.dataset.theme || "auto") + 1) % themes.length];
  const kept = theme === "auto" ? "max-age=0" : "max-age=31536000";
  document.cookie = `paddock_theme=${theme}; path=/; SameSite=Lax; ${kept}`;
  showTheme(theme);
});

// Ages, written as the server writes them.
function lengthOf(seconds) {
  const s = Math.max(0, seconds);
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (s < 9.95) return `${s.toFixed(1)} s`;
  const whole = Math.round(s);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h ${two((whole % 3600) / 60)}m`;
  return `${Math.floor(whole / 86400)}d ${two((whole % 86400) / 3600)}h`;
}
setInterval(() => {
  // What is not known any more does not go on.
  if (document.hidden || root.classList.contains("stale")) return;
  const now = Date.now() - skew;
  for (const time of document.querySelectorAll("time[data-age]")) {
    time.textContent = lengthOf((now - Date.parse(time.dateTime)) / 1000);
  }
}, 1000);

// Live: the stream says that something moved; the page is then asked for again and its parts exchanged.
const liveSwitch = document.querySelector("[data-live-switch]");
let isLive = sessionStorage.getItem("paddock-live") !== "off";
let lastEvent = null;
let renewedAt = Date.now();
let heardAt = Date.now();
let triedAt = 0;
let losing = 0;
let isRenewing = false;
let isBehind = false;
let waiting = 0;

async function renew() {
  if (isRenewing || document.hidden) return;
  isRenewing = true;
  triedAt = Date.now();
  try {
    const answer = await fetch(location.href, {
      headers: { accept: "text/html" },
      signal: AbortSignal.timeout(PATIENCE),
    });
    if (answer.status >= 500) return markLost();
    // To log in again, or to read what the server has to say instead.
    if (answer.redirected || !answer.ok) return location.reload();
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of fresh.querySelectorAll("[data-live][id]")) exchange(part);
    renewedAt = heardAt = Date.now();
    isBehind = false;
    markFound();
    main.dataset.renewed = String(Number(main.dataset.renewed || 0) + 1);
  } catch {
    markLost();
  } finally {
    isRenewing = false;
  }
}

function exchange(part) {
  const old = document.getElementById(part.id);
  if (!old || old.innerHTML === part.innerHTML) return;
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  // A person who types, or has opened something, is not interrupted.
  if (focused && focused.matches("input, select, textarea")) return;
  if (old.querySelector("details[open]")) return;
  const scrolled = [...old.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  old.innerHTML = part.innerHTML;
  [...old.querySelectorAll(".scroll")].forEach((each, i) => (each.scrollLeft = scrolled[i] || 0));
  if (focused && focused.id) {
    const again = document.getElementById(focused.id);
    if (again) walkTo(again);
  }
}

function showLive(state) {
  liveSwitch.setAttribute("aria-pressed", String(state === "live"));
  liveSwitch.classList.toggle("lost", state === "lost");
  liveSwitch.querySelector("[data-live-says]").textContent =
    state === "lost" ? "not connected" : state === "live" ? "live" : "paused";
}

// Lost: the server does not answer, or cannot read its database. What the page shows is old then: it is
// greyed, and says from when it is, until it was renewed.
const banner = document.querySelector("[data-lost]");
function markLost() {
  if (losing || !isLive) return;
  showLive("lost");
  losing = setTimeout(() => {
    const since = new Date(renewedAt - skew).toISOString().slice(11, 19);
    banner.textContent = `No connection to the server since ${since} UTC: this page shows how things were then. Trying again …`;
    banner.hidden = false;
    root.classList.add("stale");
  }, GRACE);
}
function markFound() {
  clearTimeout(losing);
  losing = 0;
  banner.hidden = true;
  root.classList.remove("stale");
  if (isLive) showLive("live");
}

if (liveSwitch && main.hasAttribute("data-page-live")) {
  liveSwitch.hidden = false;
  let stream = null;
  const open = () => {
    if (stream) stream.close();
    stream = new EventSource("/api/v1/stream");
    stream.onopen = () => losing || showLive("live");
    stream.onerror = () => {
      markLost();
      // After an answer that is an error, of a proxy for instance, a browser does not try again.
      if (stream.readyState === EventSource.CLOSED) setTimeout(() => isLive && open(), RETRY);
    };
    stream.addEventListener("pulse", (event) => {
      heardAt = Date.now();
      const pulse = JSON.parse(event.data);
      const moved = pulse.last_event !== lastEvent;
      lastEvent = pulse.last_event;
      const wait = Math.max(LEAST, SHARE * pulse.watchers) - (Date.now() - renewedAt);
      clearTimeout(waiting);
      if (moved || isBehind || wait < LEAST - QUIET) {
        isBehind = true;
        waiting = setTimeout(renew, Math.max(0, wait));
      }
    });
  };
  const turn = () => {
    if (isLive) open();
    else {
      if (stream) stream.close();
      clearTimeout(losing);
      losing = 0;
      showLive("paused");
    }
  };
  liveSwitch.addEventListener("click", () => {
    isLive = !isLive;
    sessionStorage.setItem("paddock-live", isLive ? "on" : "off");
    turn();
  });
  setInterval(() => {
    if (isLive && (losing ? Date.now() - triedAt > RETRY : Date.now() - heardAt > SILENT)) renew();
  }, 1000);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && isLive) renew();
  });
  turn();
}

// The fleet is one stop for the tab key; arrows walk within it.
function walkTo(cell) {
  const cells = cell.closest("[data-cells]");
  if (cells) for (const each of cells.querySelectorAll("a")) each.tabIndex = each === cell ? 0 : -1;
  cell.focus();
}
document.addEventListener("keydown", (event) => {
  const cells = event.target.closest && event.target.closest("[data-cells]");
  if (!cells) return;
  const all = [...cells.querySelectorAll("a")];
  const at = all.indexOf(event.target);
  const row = all.filter((each) => each.offsetTop === all[0].offsetTop).length;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: row, ArrowUp: -row }[event.key];
  const target = event.key === "Home" ? all[0] : event.key === "End" ? all[all.length - 1] : all[at + step];
  if (target && (step || event.key === "Home" || event.key === "End")) {
    event.preventDefault();
    walkTo(target);
  }
});

// What cannot be overlooked is asked once more.
document.addEventListener("submit", (event) => {
  const ask = event.target.dataset.ask;
  if (ask && !window.confirm(ask)) event.preventDefault();
});
