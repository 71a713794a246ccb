"use strict";
// The transcript browser. What models wrote only ever becomes text nodes, never markup.

const data = JSON.parse(document.getElementById("data").textContent);
const STEP = 20; // joint actions, or pairs of them, that are shown at a time
const EMPTY = { source: "", other: "", item: "", turn: "", sort: "", from: "", to: "", text: "", verdict: [],
  shown: STEP };
const SINGLE = ["source", "other", "item", "turn", "sort", "from", "to", "text"]; // fields of the form with one value

const sources = new Map(data.sources.map((source) => [`${source.name}:${source.part}`, source]));
for (const { actions } of data.sources) {
  const followed = new Set(actions.map((action) => action.follows));
  actions.forEach((action, place) => {
    action.final = !followed.has(place);
    action.before = action.follows === null ? null : actions[action.follows];
  });
}
const control = (id) => document.getElementById(id);
let state = { ...EMPTY };

// Data

const text = (index) => data.texts[index];
const itemOf = (action) => text(action.item);
const verdictOf = (action) => text(action.verdict);

function speechOf(index) {
  const [agent, prompt, completion, promptTokens, tokens, finish, sample, advantage, marginal, remark]
    = data.speeches[index];
  return { agent: text(agent), prompt, completion: text(completion), promptTokens, tokens, finish: text(finish),
    sample, advantage, marginal, remark };
}

function haystack(action) {
  const speeches = [...action.heard, ...action.speeches].map(speechOf);
  const remarks = speeches.filter((speech) => speech.remark !== null).map((speech) => speechOf(speech.remark));
  const completions = [...speeches, ...remarks].map((speech) => speech.completion);
  return [...completions, ...action.failures.map(text)].join("\n").toLowerCase();
}

function ofTurn(action) {
  if (!state.turn) return true;
  return state.turn === "final" ? action.final : action.turn + 1 === Number(state.turn);
}

function passes(action) {
  const { item, verdict, from, to } = state;
  if (item && itemOf(action) !== item) return false;
  if (!ofTurn(action)) return false;
  if (verdict.length && !verdict.includes(verdictOf(action))) return false;
  if (from !== "" && !(action.total !== null && action.total >= Number(from))) return false;
  if (to !== "" && !(action.total !== null && action.total <= Number(to))) return false;
  return !state.text || haystack(action).includes(state.text.toLowerCase());
}

function byReward(actions) {
  if (!state.sort) return actions;
  const sign = state.sort === "high" ? -1 : 1;
  const known = actions.filter((action) => action.total !== null);
  const unknown = actions.filter((action) => action.total === null);
  return [...known.sort((a, b) => sign * (a.total - b.total)), ...unknown];
}

function byItem(actions) {
  const items = new Map();
  for (const action of actions) {
    const name = itemOf(action);
    if (!items.has(name)) items.set(name, []);
    items.get(name).push(action);
  }
  return items;
}

// Of several turns the final answers count, as in the metrics, unless a turn is chosen.
function mean(actions) {
  const final = state.turn ? [] : actions.filter((action) => action.final);
  const totals = (final.length ? final : actions).map((action) => action.total).filter((total) => total !== null);
  return totals.length ? totals.reduce((sum, total) => sum + total, 0) / totals.length : null;
}

function counts(actions) {
  const found = new Map();
  for (const action of actions) found.set(verdictOf(action), (found.get(verdictOf(action)) || 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1]);
}

// Text

const number = (value) => (value === null ? "–" : String(Number(value.toPrecision(4))));
const signed = (value) => (value > 0 ? "+" : "") + number(value);
const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

// Characters that are not seen or that turn the direction of writing, by their numbers.
const HIDDEN = new RegExp("[\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u180e\\u200b-\\u200f"
  + "\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\u{e0000}-\\u{e007f}]", "gu");

function visible(raw) {
  return raw.replace(HIDDEN, (sign) => `[U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

function make(name, className, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children); // strings become text nodes
  return node;
}

// What is shown

// Of a completion: what is known of it, its prompt, and itself.
function showTexts(speech) {
  const known = [plural(speech.tokens, "token"), speech.finish, `sample ${speech.sample}`];
  if (speech.advantage !== null) known.push(`advantage ${signed(speech.advantage)}`);
  if (speech.marginal !== null) known.push(`marginal ${signed(speech.marginal)}`);
  return [
    make("p", "facts", visible(known.join(" · "))),
    make("details", "", make("summary", "", `prompt, ${plural(speech.promptTokens, "token")}`),
      make("pre", "prompt", visible(text(speech.prompt)))),
    make("pre", "completion", visible(speech.completion))];
}

function showSpeech(index) {
  const speech = speechOf(index);
  const shown = [make("h4", "", visible(speech.agent)), ...showTexts(speech)];
  if (speech.remark !== null) shown.push(make("h5", "", "then said"), ...showTexts(speechOf(speech.remark)));
  return make("section", "", ...shown);
}

function interaction(seen) {
  const words = seen.map(text);
  if (words.length !== 7) return words.join(", ");
  const [caller, callee, name, calls, returned, raised, used] = words;
  const use = { True: "result used", False: "result not used" }[used] || "use of the result unknown";
  return `${caller} → ${callee}.${name}: calls ${calls}, returned ${returned}, raised ${raised}, ${use}`;
}

function list(title, lines) {
  const entries = lines.map((line) => make("li", "", visible(line)));
  return make("div", "judging", make("strong", "", title), make("ul", "", ...entries));
}

function showAction(action) {
  const verdict = verdictOf(action);
  const before = action.before ? `, after reward ${number(action.before.total)}` : "";
  const judged = make("p", "judged",
    make("span", verdict === "pass" ? "verdict pass" : "verdict", visible(verdict)),
    make("strong", "", `reward ${number(action.total)}`),
    ...action.parts.map(([name, value]) => make("span", "", `${visible(text(name))} ${number(value)}`)),
    make("span", "facts", `turn ${action.turn + 1}${before}`));
  const card = make("article", "action", judged);
  if (action.heard.length) {
    card.append(make("details", "", make("summary", "", `${plural(action.heard.length, "completion")} before the answer`),
      make("div", "agents", ...action.heard.map(showSpeech))));
  }
  card.append(make("div", "agents", ...action.speeches.map(showSpeech)));
  if (action.failures.length) card.append(list("failed", action.failures.map(text)));
  if (action.interactions.length) card.append(list("calls between agents", action.interactions.map(interaction)));
  return card;
}

function summary(actions) {
  const verdicts = counts(actions).map(([verdict, count]) => `${verdict} ${count}`).join(", ");
  return visible(`${plural(actions.length, "joint action")}, mean reward ${number(mean(actions))} (${verdicts})`);
}

// The rows of one source: an item's heading, then its joint actions.
function rowsOfOne(actions) {
  const groups = [...byItem(actions.filter(passes))];
  return groups.map(([item, found]) => ({
    heading: () => [make("h3", "", visible(item)), make("p", "facts", summary(found))],
    rows: byReward(found).map((action) => () => showAction(action)),
  }));
}

function showSide(name, action) {
  const missing = make("p", "note", "no further joint action here");
  return make("div", "", make("p", "sides", visible(name)), action ? showAction(action) : missing);
}

const asked = (action) => action.speeches.map((index) => speechOf(index).prompt).join(" ");

// The rows of two sources on the items that both have: joint actions in pairs, by their places in the order.
function rowsOfTwo(left, right) {
  const names = [state.source, state.other];
  const all = [byItem(left.actions), byItem(right.actions)];
  const common = [...all[0].keys()].filter((item) => all[1].has(item));
  const found = common.map((item) => [item, ...all.map((side) => byReward(side.get(item).filter(passes)))]);
  return found.filter(([, a, b]) => a.length || b.length).map(([item, a, b]) => {
    const same = asked(all[0].get(item)[0]) === asked(all[1].get(item)[0]);
    const lines = [a, b].map((side, i) => make("p", "facts", `${visible(names[i])}: ${summary(side)}`));
    if (!same) lines.push(make("p", "note", "The prompts differ between the two."));
    const pairs = Array.from({ length: Math.max(a.length, b.length) }, (_, i) => [a[i], b[i]]);
    return {
      heading: () => [make("h3", "", visible(item)), ...lines],
      rows: pairs.map((pair) => () => make("div", "pair", ...pair.map((action, i) => showSide(names[i], action)))),
    };
  });
}

function comparison(left, right) {
  const [a, b] = [left, right].map((source) => byItem(source.actions));
  const common = [...a.keys()].filter((item) => b.has(item));
  const means = [a, b].map((side) => mean(common.flatMap((item) => side.get(item)).filter(ofTurn)));
  const words = `${plural(common.length, "item")} in both, ${a.size - common.length} only in the first, `
    + `${b.size - common.length} only in the second.`;
  if (means.includes(null)) return words;
  return `${words} Mean reward on those in both: ${number(means[0])} and ${number(means[1])} `
    + `(${signed(means[1] - means[0])}).`;
}

function showList() {
  const left = sources.get(state.source);
  const right = sources.get(state.other);
  const groups = right ? rowsOfTwo(left, right) : rowsOfOne(left.actions);
  const total = groups.reduce((sum, group) => sum + group.rows.length, 0);
  const shown = [];
  let room = state.shown;
  for (const group of groups) {
    if (room <= 0) break;
    shown.push(make("section", "item", ...group.heading(), ...group.rows.slice(0, room).map((row) => row())));
    room -= group.rows.length;
  }
  control("list").replaceChildren(...shown);
  control("more").hidden = total <= state.shown;
  const noun = right ? "pair" : "joint action";
  const words = [`${plural(total, noun)} on ${plural(groups.length, "item")} pass the filters; `
    + `${Math.min(total, state.shown)} shown.`];
  if (right) words.push(comparison(left, right));
  control("status").textContent = words.join(" ");
}
