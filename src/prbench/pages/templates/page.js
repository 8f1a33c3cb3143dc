"use strict";
// Tables that are wider than the screen say so.
for (const box of document.querySelectorAll(".scroll")) {
  const look = () => box.parentElement.classList.toggle("overflows", box.scrollWidth > box.clientWidth + 1);
  new ResizeObserver(look).observe(box);
  look();
}

// Sorting: a click on a heading sorts by that column, another click reverses the order.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.sort;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return down ? -order : order;
    });
    table.tBodies[0].append(...rows);
  }));
}

// The item browser. All text goes in as text, never as markup.
const block = document.getElementById("data");
const data = block ? JSON.parse(block.textContent) : { items: [] };
const PAGE = 10;
if (data.items.length) {
  const find = (id) => document.getElementById(id);
  const make = (tag, text, cls) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (cls) node.className = cls;
    return node;
  };
  const option = (select, value, text) => { const o = make("option", text); o.value = value; select.append(o); };
  data.sets.forEach((name, i) => option(find("set"), i, name));
  let page = 0;

  const modelsOfSet = () => data.models.filter((m) => m.set === Number(find("set").value));
  const fillModels = () => {
    find("model").replaceChildren();
    modelsOfSet().forEach((m) => option(find("model"), m.index, m.name));
    const kept = find("category").value;
    find("category").replaceChildren();
    option(find("category"), "", "all");
    [...new Set(data.items.filter((i) => i.set === Number(find("set").value)).map((i) => i.category))].sort()
      .forEach((name) => option(find("category"), name, name || "(none)"));
    find("category").value = kept;
    if (find("category").selectedIndex < 0) find("category").value = "";
  };
  const matches = () => {
    const set = Number(find("set").value), model = find("model").value, verdict = find("verdict").value;
    const category = find("category").value, words = find("words").value.toLowerCase();
    return data.items.filter((item) => item.set === set
      && (!verdict || (item.verdicts[model] || {}).verdict === verdict)
      && (!category || item.category === category)
      && (!words || (item.question + " " + item.chosen + " " + item.rejected).toLowerCase().includes(words)));
  };
  const number = (value) => value === null ? "–" : Number(value).toPrecision(4);
  const draw = () => {
    const found = matches(), start = page * PAGE, list = find("list");
    find("count").textContent = found.length + " items" + (found.length > PAGE ? ", showing " + (start + 1) + " to " + Math.min(start + PAGE, found.length) : "");
    list.replaceChildren();
    for (const item of found.slice(start, start + PAGE)) {
      const box = make("article", undefined, "item");
      box.append(make("h3", item.question), make("p", item.id + " · " + item.category + " · user " + item.user, "quiet"));
      const pair = make("div", undefined, "pair");
      for (const side of ["chosen", "rejected"]) { const d = make("div"); d.append(make("b", side), item[side]); pair.append(d); }
      box.append(pair);
      const posts = data.users[item.set][item.profile] || { posts: [], more: 0 };
      const details = make("details"), listing = make("ul");
      details.append(make("summary", "Profile: " + (posts.posts.length + posts.more) + " posts"));
      posts.posts.forEach((text) => listing.append(make("li", text)));
      if (posts.more) listing.append(make("li", posts.more + " older posts are not shown here", "quiet"));
      details.append(listing);
      box.append(details);
      const scores = make("ul", undefined, "scores");
      for (const m of modelsOfSet()) {
        const v = item.verdicts[m.index];
        if (v) scores.append(make("li", m.name + ": " + v.verdict + (v.reason ? " (" + v.reason + ")" : "") + (v.chosen === null ? "" : " " + number(v.chosen) + " / " + number(v.rejected)), v.verdict));
      }
      box.append(scores);
      list.append(box);
    }
    find("back").disabled = page === 0;
    find("next").disabled = start + PAGE >= found.length;
  };
  const restart = () => { page = 0; draw(); };
  find("set").addEventListener("change", () => { fillModels(); restart(); });
  ["model", "verdict", "category"].forEach((id) => find(id).addEventListener("change", restart));
  find("words").addEventListener("input", restart);
  document.querySelector(".filters").addEventListener("submit", (event) => event.preventDefault());
  find("back").addEventListener("click", () => { page -= 1; draw(); });
  find("next").addEventListener("click", () => { page += 1; draw(); });
  fillModels();
  draw();
}
