// Keeps the page current, searches while one types, and lets the keyboard do everything.
"use strict";

const live = document.getElementById("live");
let source = null;
let retry = 1000;
let timer = 0;

function say(state, text) {
  if (!live || live.textContent === text) return;
  live.className = state;
  live.textContent = text;
}

// --- times: the server sends moments, the browser says how long ago that is ---

const units = [["day", 86400], ["h", 3600], ["min", 60], ["s", 1]];

function ago(moment) {
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(moment)) / 1000));
  const [name, size] = units.find(([, size]) => seconds >= size) || units[3];
  const count = Math.floor(seconds / size);
  return `${count} ${name === "day" && count !== 1 ? "days" : name} ago`;
}

function tick(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const text = ago(time.dateTime);
    if (time.textContent !== text) {
      if (!time.title) time.title = time.dateTime;
      time.textContent = text;
    }
  }
}

// --- what changes ---

function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html.trim();
  return template.content.firstElementChild;
}

function focused(element) {
  const active = document.activeElement;
  if (!active || !element.contains(active)) return null;
  const all = [...element.querySelectorAll("a, button, select, input, summary")];
  return all.indexOf(active);
}

function put(id, html) {
  const old = document.getElementById(id);
  const fresh = parsed(html);
  if (!fresh) return null;
  tick(fresh);
  if (!old) return fresh;
  const place = focused(old);
  const values = [...old.querySelectorAll("select")].map((each) => each.value);
  fresh.classList.add("changed");
  old.replaceWith(fresh);
  fresh.querySelectorAll("select").forEach((each, index) => {
    if ([...each.options].some((option) => option.value === values[index])) each.value = values[index];
  });
  if (place !== null && place >= 0) {
    fresh.querySelectorAll("a, button, select, input, summary")[place]?.focus({ preventScroll: true });
  }
  return fresh;
}

function order(id, ids, fresh) {
  const list = document.getElementById(id);
  if (!list) return;
  const wanted = new Set(ids);
  for (const child of [...list.children]) if (!wanted.has(child.id)) child.remove();
  const active = document.activeElement;
  let next = list.firstElementChild;
  for (const each of ids) {
    const element = document.getElementById(each) || fresh.get(each);
    if (!element) continue;
    if (element === next) next = next.nextElementSibling;
    else list.insertBefore(element, next);
  }
  if (active !== document.activeElement && active?.isConnected) active.focus({ preventScroll: true });
}

function patch(event) {
  const change = JSON.parse(event.data);
  const fresh = new Map();
  for (const [id, html] of Object.entries(change.blocks || {})) {
    const element = put(id, html);
    if (element && !element.isConnected) fresh.set(id, element);
  }
  for (const [id, ids] of Object.entries(change.lists || {})) order(id, ids, fresh);
  document.body.dataset.rev = change.rev;
}

// --- the stream; a page in the background needs none ---

function open() {
  close();
  const { at, rev } = document.body.dataset;
  if (!at || document.hidden) return;
  source = new EventSource(`/live?${new URLSearchParams({ at, rev })}`);
  source.addEventListener("open", () => { retry = 1000; say("on", "live"); });
  source.addEventListener("patch", patch);
  source.addEventListener("gone", () => { close(); say("off", "this is gone"); });
  source.addEventListener("ended", () => location.reload());
  source.addEventListener("error", () => {
    close();
    say("off", "not connected");
    timer = setTimeout(again, retry);
    retry = Math.min(retry * 2, 15000);
  });
}

async function again() {
  // A stream says nothing about why it ended, so the page itself is asked.
  try {
    const answer = await fetch(location.href, { method: "HEAD", redirect: "manual" });
    if (answer.type === "opaqueredirect" || answer.status === 401) return location.reload();
    if (answer.status === 404) return say("off", "this is gone");
  } catch { /* the server is away; the next try tells */ }
  open();
}

function close() {
  clearTimeout(timer);
  if (source) source.close();
  source = null;
}

// --- search while one types ---

let typing = 0;
let asked = 0;

async function search(form) {
  const number = ++asked;
  const query = new URLSearchParams(new FormData(form));
  if (!query.get("q")) query.delete("q");
  const url = form.getAttribute("action") + (query.size ? `?${query}` : "");
  const answer = await fetch(url);
  if (number !== asked || !answer.ok || answer.redirected) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const id of ["counts", "found", "tiles", "installs", "pages", "matrix", "notes"]) {
    const [old, now] = [document.getElementById(id), fresh.getElementById(id)];
    if (old && now) old.replaceWith(document.adoptNode(now));
  }
  document.body.dataset.at = fresh.body.dataset.at;
  document.body.dataset.rev = fresh.body.dataset.rev;
  history.replaceState(null, "", url);
  tick(document);
  open();
}

document.addEventListener("input", (event) => {
  if (event.target.id !== "q") return;
  clearTimeout(typing);
  typing = setTimeout(() => search(event.target.form).catch(() => say("off", "not connected")), 150);
});

// --- the keyboard ---

function move(step) {
  const rows = [...document.querySelectorAll("a[data-row]")];
  const place = rows.indexOf(document.activeElement);
  const next = rows[place < 0 ? (step > 0 ? 0 : rows.length - 1) : place + step];
  if (next) next.focus();
  else if (step < 0) document.getElementById("q")?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const box = document.getElementById("q");
  const inBox = document.activeElement === box && box;
  const typesElsewhere = !inBox && document.activeElement?.matches("input, select, textarea");
  if (event.key === "/" && !inBox && !typesElsewhere && box) {
    event.preventDefault();
    box.focus();
    box.select();
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !typesElsewhere) {
    if (!document.querySelector("a[data-row]")) return;
    event.preventDefault();
    move(event.key === "ArrowDown" ? 1 : -1);
  } else if (event.key === "Escape") {
    if (inBox && box.value) { box.value = ""; search(box.form); }
    else if (inBox) box.blur();
    else if (!typesElsewhere && location.pathname !== "/") history.back();
  }
});

// --- light and dark ---

const button = document.getElementById("theme");
const system = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : system.matches;
}

function label() { button.textContent = isDark() ? "Light" : "Dark"; }

if (button) {
  button.hidden = false;
  label();
  system.addEventListener("change", label);
  button.addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try { localStorage.setItem("knfleet-theme", chosen); } catch { /* for this page alone, then */ }
    label();
  });
}

tick(document);
setInterval(() => tick(document), 10000);
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
addEventListener("pagehide", close);
addEventListener("pageshow", open);
