// The form of the transcript browser, and the same in the page's address.

function option(value, label) {
  const node = make("option", "", visible(label));
  node.value = value;
  return node;
}

function sourceOptions() {
  const groups = new Map();
  for (const [id, source] of sources) {
    if (!groups.has(source.name)) groups.set(source.name, []);
    groups.get(source.name).push(option(id, `${source.name}: ${source.part}`));
  }
  return [...groups].map(([name, options]) => {
    const node = make("optgroup", "", ...options);
    node.label = visible(name);
    return node;
  });
}

function verdictBox([verdict, count]) {
  const box = make("input");
  box.type = "checkbox";
  box.value = verdict;
  box.checked = state.verdict.includes(verdict);
  return make("label", "", box, visible(` ${verdict} (${count})`));
}

// The turns of the sources, from 1; nothing to choose from where all answers are of one.
function showTurns(actions) {
  const last = Math.max(...actions.map((action) => action.turn + 1));
  const turns = Array.from({ length: last }, (_, index) => String(index + 1));
  if (!["final", ...turns].includes(state.turn) || last < 2) state.turn = "";
  control("turn").replaceChildren(option("", "all turns"), option("final", "final answers"),
    ...turns.map((turn) => option(turn, `turn ${turn}`)));
  control("turns").hidden = last < 2;
}

// Fills in what depends on the sources, keeping what is chosen as far as it still exists.
function showForm() {
  const chosen = [state.source, state.other].filter((id) => sources.has(id)).map((id) => sources.get(id));
  const actions = chosen.flatMap((source) => source.actions);
  const items = [...byItem(actions).keys()].sort();
  if (!items.includes(state.item)) state.item = "";
  showTurns(actions);
  const found = counts(actions);
  state.verdict = state.verdict.filter((verdict) => found.some(([name]) => name === verdict));
  control("item").replaceChildren(option("", `all ${plural(items.length, "item")}`),
    ...items.map((item) => option(item, item)));
  control("verdicts").replaceChildren(...found.map(verdictBox));
  for (const name of SINGLE) control(name).value = state[name];
}

// The state is in the address too, so that a view can be kept or sent as a link.
let written = null; // the address that this page has set itself

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  if (location.hash && !location.hash.includes("=")) return false; // a link to a section of the page
  state = { ...EMPTY, verdict: given.getAll("verdict") };
  for (const name of SINGLE) state[name] = given.get(name) || "";
  for (const name of ["from", "to"]) if (Number.isNaN(Number(state[name]))) state[name] = "";
  if (!["", "high", "low"].includes(state.sort)) state.sort = "";
  if (!sources.has(state.source)) state.source = [...sources.keys()][0];
  if (!sources.has(state.other)) state.other = "";
  return true;
}

function writeAddress() {
  const given = new URLSearchParams(SINGLE.filter((name) => state[name]).map((name) => [name, state[name]]));
  for (const verdict of state.verdict) given.append("verdict", verdict);
  history.replaceState(null, "", `#${given}`);
  written = location.hash;
}

function change(changes) {
  state = { ...state, shown: STEP, ...changes };
  if ("source" in changes || "other" in changes) showForm();
  writeAddress();
  showList();
}

function start() {
  if (!sources.size) {
    control("filters").hidden = true;
    control("status").textContent = "This page holds no transcripts.";
    return;
  }
  control("source").replaceChildren(...sourceOptions());
  control("other").replaceChildren(option("", "nothing"), ...sourceOptions());
  for (const name of SINGLE) control(name).addEventListener("input", () => change({ [name]: control(name).value }));
  control("verdicts").addEventListener("input", () =>
    change({ verdict: [...control("verdicts").querySelectorAll("input:checked")].map((box) => box.value) }));
  control("filters").addEventListener("submit", (event) => event.preventDefault());
  control("reset").addEventListener("click", () => change({ ...EMPTY, source: state.source, other: state.other }));
  control("more").addEventListener("click", () => {
    const known = control("list").querySelectorAll(".action").length;
    change({ shown: state.shown + STEP });
    const next = control("list").querySelectorAll(".action")[known];
    if (next) { next.tabIndex = -1; next.focus(); }
  });
  // The event of an older address may come late: what this page has written is shown, and rebuilding the form
  // would take the focus from it.
  const follow = () => { if (location.hash !== written && readAddress()) { showForm(); showList(); } };
  addEventListener("hashchange", follow);
  if (!readAddress()) { state.source = [...sources.keys()][0]; }
  showForm();
  showList();
}

start();
