"use strict";

/* Saves what is entered at once, and adds keys. Every page also works without it. */

const QUIET_SECONDS = 60; // after that long without a sign of life nobody is counted as working
const TYPING_PAUSE = 700;
const RETRY = [1000, 2000, 5000, 10000];

const byId = (id) => document.getElementById(id);
const form = byId("answer");

function say(text, isBad = false) {
  const state = byId("state");
  state.textContent = text;
  state.classList.toggle("bad", isBad);
}

/* --- time on this item --- */

let workedSeconds = 0;
let lastSign = Date.now();
for (const sign of ["keydown", "pointerdown", "pointermove", "scroll"]) {
  document.addEventListener(sign, () => { lastSign = Date.now(); }, { passive: true });
}
setInterval(() => {
  const isHere = document.visibilityState === "visible" && Date.now() - lastSign < QUIET_SECONDS * 1000;
  workedSeconds += isHere ? 1 : 0;
}, 1000);

/* --- saving: one request at a time, and what changed meanwhile goes with the next --- */

let isDirty = false;
let wanted = "draft"; // what the next save asks for: a "done" or "skip" that did not get through is asked for again
let isStaying = true; // false from "done" or "skip" on, until something else is entered
let timer = null;
let running = null;
let failures = 0;
let isLeaving = false;

class Refusal extends Error {}

function body(action) {
  const data = new URLSearchParams(new FormData(form));
  data.set("do", action);
  data.set("seconds", String(workedSeconds));
  return data;
}

/* What our server refuses stays refused; everything else may work a moment later. */
async function read(reply) {
  if (reply.status >= 500 || reply.status === 408) { throw new Error("the server is busy"); }
  const said = await reply.json().catch(() => {
    if (reply.ok) { throw new Error("no connection"); } // it broke off in the middle of the reply
    return { message: `The server refused it (${reply.status}).` };
  });
  if (said.version === undefined) { throw new Refusal(said.message); }
  return said;
}

function send(keepalive = false) {
  const counted = workedSeconds;
  const action = wanted;
  const data = body(action);
  isDirty = false;
  return fetch(form.getAttribute("action"), { method: "POST", headers: { Accept: "application/json" }, body: data, keepalive })
    .catch(() => { throw new Error("no connection"); })
    .then(async (reply) => {
      const said = await read(reply);
      workedSeconds -= counted;
      failures = 0;
      if (wanted === action) { wanted = "draft"; }
      form.elements.seen.value = said.version;
      tell(said);
      if (reply.ok && action !== "draft" && wanted === "draft" && !isStaying) { leave(said.next); }
    })
    .catch((problem) => {
      isDirty = true;
      if (problem instanceof Refusal) { wanted = "draft"; say(`Not saved. ${problem.message}`, true); return; }
      const wait = RETRY[Math.min(failures, RETRY.length - 1)];
      failures += 1;
      say(`Not saved: ${problem.message}. Trying again…`, true);
      schedule(wait);
    });
}

function save() {
  clearTimeout(timer);
  timer = null;
  const before = running || Promise.resolve();
  running = before.then(() => (isDirty && !isLeaving ? send() : null));
  return running;
}

function ask(action) {
  wanted = action;
  isDirty = true;
  return save();
}

function schedule(pause) {
  clearTimeout(timer);
  timer = setTimeout(save, pause);
}

function changed(pause) {
  isDirty = true;
  isStaying = true;
  say("Saving…");
  schedule(pause);
}

function leave(place) {
  isLeaving = true;
  location.assign(place);
}

const ASKED_FOR = { draft: "draft", done: "done", skipped: "skip" };
const HAD_DONE = { done: "finished", skipped: "skipped" };

function tell(said) {
  if (said.replaced) {
    const did = HAD_DONE[said.replaced.status] || "changed";
    const now = said.status === "draft" && did !== "changed" ? "counts now, as a draft" : "counts now";
    warn(`You had ${did} this in another tab or on another device at ${clock(said.replaced.saved_at)}. What you see here ${now}; the other version is kept.`);
    offer(said.replaced);
  } else if (said.message) {
    warn(said.message);
  }
  const words = { draft: "Draft saved", done: "Done; changes are saved", skipped: "Skipped" };
  say(isDirty ? "Saving…" : `${words[said.status] || "Saved"} at ${clock(said.saved_at)}`);
}

function warn(text) {
  const banner = byId("banner");
  banner.querySelector("span").textContent = text;
  banner.hidden = false;
  banner.scrollIntoView({ block: "center" });
}

/* The offer stands until it is taken, whatever is saved meanwhile. */
function offer(replaced) {
  const back = byId("banner").querySelector("button");
  back.hidden = false;
  back.onclick = () => {
    fill(replaced.fields);
    back.hidden = true;
    byId("banner").hidden = true;
    isStaying = true;
    ask(ASKED_FOR[replaced.status] || "draft");
  };
}

function clock(moment) {
  return new Date(moment).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

function fill(fields) {
  for (const control of form.elements) {
    if (!control.name || control.type === "hidden" || control.type === "submit") { continue; }
    const value = fields[control.name] || "";
    if (control.type === "radio" || control.type === "checkbox") { control.checked = control.value === value; } else { control.value = value; }
  }
}

/* What another tab saved is taken over when this one comes back to the front with nothing unsaved. */
async function refresh() {
  if (document.visibilityState !== "visible" || isDirty) { return; }
  const reply = await fetch(form.dataset.saved, { headers: { Accept: "application/json" } }).catch(() => null);
  if (!reply || !reply.ok || isDirty) { return; }
  const now = await reply.json();
  if (now.version > Number(form.elements.seen.value)) {
    fill(now.fields);
    form.elements.seen.value = now.version;
    say("Updated with what you saved elsewhere");
  }
}

async function go(place) {
  isStaying = true; // what is asked for goes through, and then to this place
  await save();
  if (!isDirty && !isLeaving) { leave(place); }
}

function watchForm() {
  form.addEventListener("input", (event) => changed(event.target.matches("textarea, input[type=text]") ? TYPING_PAUSE : 0));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    isStaying = false;
    ask(event.submitter ? event.submitter.value : "draft");
  });
  for (const id of ["previous", "following"]) {
    const link = byId(id);
    if (link) { link.addEventListener("click", (event) => { event.preventDefault(); go(link.href); }); }
  }
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden") { if (isDirty) { send(true); } } else if (isDirty) { save(); } else { refresh(); }
  });
  window.addEventListener("pageshow", (event) => { if (event.persisted) { isLeaving = false; refresh(); } });
  window.addEventListener("beforeunload", (event) => { if (isDirty && !isLeaving) { event.preventDefault(); } });
}

/* --- keys --- */

const REMEMBERED = "prbench-keys";

function usesKeys() {
  return localStorage.getItem(REMEMBERED) !== "off";
}

function pick(radio) {
  radio.focus();
  if (!radio.checked) { radio.click(); }
}

function rate(group, digit) {
  pick(group.querySelector(`input[value="${digit}"]`));
  const groups = [...document.querySelectorAll("[data-rating]")];
  const following = groups[groups.indexOf(group) + 1];
  if (following) { focusOn(following); } else { byId("done").focus(); }
}

function focusOn(group) {
  const target = group.querySelector("input:checked") || group.querySelector("input");
  target.focus();
  group.scrollIntoView({ block: "nearest" });
}

function toRatings() {
  const groups = [...document.querySelectorAll("[data-rating]")];
  const target = groups.find((group) => !group.querySelector(":checked")) || groups[0] || document.querySelector("[data-why]");
  focusOn(target);
}

const ACTIONS = {
  r: toRatings,
  w: () => byId("note").focus(),
  f: () => form.elements.flag.click(),
  d: () => byId("done").click(),
  s: () => byId("skip").click(),
  n: () => byId("following")?.click(),
  p: () => byId("previous")?.click(),
};

function onKey(event) {
  const isTyping = event.target.matches("textarea, input[type=text]");
  if (event.key === "Escape" && isTyping) { event.target.blur(); return; }
  if (isTyping || event.repeat || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) { return; }
  if (event.key === "?") { byId("keys").showModal(); event.preventDefault(); return; }
  if (!usesKeys()) { return; }
  const group = event.target.closest("[data-rating]");
  if (group && /^[1-5]$/.test(event.key)) {
    rate(group, event.key);
  } else if (/^[1-3]$/.test(event.key)) {
    pick(document.querySelectorAll("[data-choice] input")[Number(event.key) - 1]);
  } else if (Object.hasOwn(ACTIONS, event.key)) {
    ACTIONS[event.key]();
  } else {
    return;
  }
  event.preventDefault();
}

function watchKeys() {
  document.addEventListener("keydown", onKey);
  byId("show-keys").addEventListener("click", () => byId("keys").showModal());
  const box = byId("use-keys");
  box.checked = usesKeys();
  box.addEventListener("change", () => localStorage.setItem(REMEMBERED, box.checked ? "on" : "off"));
}

if (form) { watchForm(); }
if (byId("keys")) { watchKeys(); }
for (const button of document.querySelectorAll("[data-copy]")) {
  const field = byId(button.dataset.copy);
  field.addEventListener("focus", () => field.select());
  if (!navigator.clipboard) { continue; } // only where the address is safe: https, or this machine
  button.hidden = false;
  button.addEventListener("click", async () => { await navigator.clipboard.writeText(field.value); button.textContent = "Copied"; });
}
