// Ranks the kept candidates again whenever a slider moves, and asks the server for nothing. The arithmetic is that of
// search/ranking/fusion.py and search/ranking/rnn.py; tests/browser/test_sliders.py holds both to the same order.
"use strict";

const SHOWN = 20;
const RANKS = 10;

// [[document number, score], ...], best first. Documents are numbered in the order of their ids, which breaks ties.
function fused(query, weights, total) {
  const names = Object.keys(query.lists).filter((name) => weights[name] > 0);
  let counts = names.map((name) => (weights[name] / total) * query.lists[name].extent);
  let sum = counts.reduce((all, count) => all + count, 0);
  if (!(sum > 0)) {
    counts = names.map((name) => (query.lists[name].within ? weights[name] / total : 0));
    sum = counts.reduce((all, count) => all + count, 0);
  }
  const scores = new Map();
  names.forEach((name, place) => {
    const list = query.lists[name];
    const count = counts[place] / (sum || 1);
    list.documents.forEach((number, rank) => {
      const before = scores.get(number);
      const score = count * list.values[rank];
      if (before) scores.set(number, { score: before.score + score, best: Math.min(before.best, rank) });
      else scores.set(number, { score, best: rank });
    });
  });
  return [...scores]
    .sort(([first, one], [second, other]) => other.score - one.score || one.best - other.best || first - second)
    .map(([number, { score }]) => [number, score]);
}

// rNN: weight * score + (1 - weight) * J for the documents that have a J; the others keep their order below.
function reranked(query, ranking, weight) {
  if (query.jaccard === null || weight === 1) return ranking;
  const head = ranking
    .filter(([number]) => query.jaccard[number] !== null)
    .map(([number, score]) => [number, weight * score + (1 - weight) * query.jaccard[number]])
    .sort(([, one], [, other]) => other - one); // equal scores keep their order
  const tail = ranking.filter(([number]) => query.jaccard[number] === null);
  if (!tail.length || !head.length) return [...head, ...tail];
  const keep = weight || 0;
  const highest = weight ? tail[0][1] : Math.max(1, tail[0][1]);
  const offset = Math.min(head[head.length - 1][1] - keep * highest, 0);
  return [...head, ...tail.map(([number, score]) => [number, keep * score + offset])];
}

function measured(query, ranking) {
  const gain = ranking
    .slice(0, RANKS)
    .reduce((all, [number], rank) => all + query.grades[number] / Math.log2(rank + 2), 0);
  return query.ideal > 0 ? gain / query.ideal : 0;
}

function element(name, text, attributes) {
  const made = document.createElement(name);
  made.textContent = text;
  Object.entries(attributes || {}).forEach(([key, value]) => made.setAttribute(key, value));
  return made;
}

function show(query, ranking, before) {
  const rows = ranking.slice(0, SHOWN).map(([number, score], rank) => {
    const row = document.createElement("li");
    const moved = before.get(number) - rank;
    const parts = [element("span", score.toFixed(4), { class: "score" }), element("span", query.titles[number], { dir: "auto" })];
    parts.push(element("code", query.documents[number], { dir: "auto" }));
    if (moved > 0) parts.push(element("span", `▲ ${moved}`, { class: "move up" }));
    if (moved < 0) parts.push(element("span", `▼ ${-moved}`, { class: "move down" }));
    parts.forEach((part, place) => row.append(...(place ? [" ", part] : [part])));
    return row;
  });
  document.getElementById("ranking").replaceChildren(...(rows.length ? rows : [element("li", "Nothing found.")]));
}

function start(kept) {
  const form = document.getElementById("sliders");
  const shown = kept.queries.find((query) => query.id === "");
  const judged = kept.queries.filter((query) => query.id !== "");
  const rank = (query, setting) => reranked(query, fused(query, setting.weights, setting.total), setting.rnn);
  const mean = (setting) => judged.reduce((all, query) => all + measured(query, rank(query, setting)), 0) / judged.length;
  const read = () => {
    const sliders = [...form.querySelectorAll("[data-signal]")];
    const weights = Object.fromEntries(sliders.map((each) => [each.dataset.signal, Number(each.value)]));
    const rnn = form.querySelector("[data-rnn]");
    const total = Object.values(weights).reduce((all, weight) => all + weight, 0);
    return { weights, total, rnn: rnn ? Number(rnn.value) : 1 };
  };
  const opened = { weights: kept.weights, total: Object.values(kept.weights).reduce((all, each) => all + each, 0), rnn: kept.rnn ?? 1 };
  const before = new Map(shown ? rank(shown, opened).map(([number], place) => [number, place]) : []);
  const first = judged.length ? mean(opened) : 0;
  const update = () => {
    form.querySelectorAll("input[type=range]").forEach((each) => {
      each.nextElementSibling.textContent = Number(each.value).toFixed(2);
    });
    const setting = read();
    document.getElementById("nothing").hidden = setting.total > 0;
    if (!(setting.total > 0)) return;
    if (shown) {
      show(shown, rank(shown, setting), before);
      const weights = Object.entries(setting.weights).filter(([, weight]) => weight > 0);
      const link = document.getElementById("search");
      const address = new URL(link.href);
      address.searchParams.set("mode", `${weights.map(([name, weight]) => `${name}:${weight}`).join(",")}@${kept.fusion}`);
      if (setting.rnn < 1) address.searchParams.set("rerank", "rnn");
      else address.searchParams.delete("rerank");
      link.href = address.pathname + address.search;
    }
    if (judged.length) {
      const value = mean(setting);
      const change = document.querySelector("[data-change]");
      const difference = value - first;
      document.querySelector("[data-figure]").textContent = value.toFixed(4);
      change.textContent = Math.abs(difference) < 0.00005 ? "" : `${difference > 0 ? "+" : "−"}${Math.abs(difference).toFixed(4)}`;
      change.className = `move ${difference > 0 ? "up" : "down"}`;
    }
  };
  form.addEventListener("input", (event) => {
    if (event.target.type === "range") update();
  });
}

const kept = document.getElementById("kept").dataset.kept;
if (kept) start(JSON.parse(kept));
