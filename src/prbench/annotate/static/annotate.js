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
let timer = null;
let running = null;
let failures = 0;
let isLeaving = false;

function body(action) {
  const data = new URLSearchParams(new FormData(form));
  data.set("do", action);
  data.set("seconds", String(workedSeconds));
  return data;
}

function send(action, keepalive = false) {
  const counted = workedSeconds;
  const data = body(action);
  isDirty = false;
  return fetch(form.getAttribute("action"), { method: "POST", headers: { Accept: "application/json" }, body: data, keepalive })
    .then(async (reply) => {
      const said = await reply.json();
      if (said.version === undefined) { throw new Refusal(said.message); }
      workedSeconds -= counted;
      failures = 0;
      form.elements.seen.value = said.version;
      tell(said);
      return reply.ok ? said : null;
    })
    .catch((problem) => {
      isDirty = true;
      if (problem instanceof Refusal) { say(`Not saved. ${problem.message}`, true); return null; }
      const wait = RETRY[Math.min(failures, RETRY.length - 1)];
      failures += 1;
      say("Not saved: no connection. Trying again…", true);
      schedule(wait);
      return null;
    });
}

class Refusal extends Error {}

function save(action) {
  clearTimeout(timer);
  timer = null;
  const before = running || Promise.resolve();
  running = before.then(() => (action === "draft" && !isDirty ? true : send(action)));
  return running;
}

function schedule(pause) {
  clearTimeout(timer);
  timer = setTimeout(() => save("draft"), pause);
}

function changed(pause) {
  isDirty = true;
  say("Saving…");
  schedule(pause);
}

function tell(said) {
  const banner = byId("banner");
  const back = banner.querySelector("button");
  const text = banner.querySelector("span");
  back.hidden = true;
  if (said.replaced) {
    text.textContent = `You had changed this in another tab or on another device at ${clock(said.replaced.saved_at)}. What you see here counts now; the other version is kept.`;
    back.hidden = false;
    back.onclick = () => { fill(said.replaced.fields); banner.hidden = true; changed(0); };
    banner.hidden = false;
  } else if (said.message) {
    text.textContent = said.message;
    banner.hidden = false;
    banner.scrollIntoView({ block: "center" });
  }
  const words = { draft: "Draft saved", done: "Done; changes are saved", skipped: "Skipped" };
  say(isDirty ? "Saving…" : `${words[said.status] || "Saved"} at ${clock(said.saved_at)}`);
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
  await save("draft");
  if (isDirty) { return; }
  isLeaving = true;
  location.assign(place);
}

function watchForm() {
  form.addEventListener("input", (event) => changed(event.target.matches("textarea, input[type=text]") ? TYPING_PAUSE : 0));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    isDirty = true;
    const said = await save(event.submitter ? event.submitter.value : "draft");
    if (said) { isLeaving = true; location.assign(said.next); }
  });
  for (const id of ["previous", "following"]) {
    const link = byId(id);
    if (link) { link.addEventListener("click", (event) => { event.preventDefault(); go(link.href); }); }
  }
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "hidden" && isDirty) { send("draft", true); } else { refresh(); }
  });
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
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) { return; }
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
