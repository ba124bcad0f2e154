"use strict";
// What the programs of all pages use.

const element = id => document.getElementById(id);
const unique = list => [...new Set(list)];
const option = (value, text, chosen) => new Option(text, value, value === chosen, value === chosen);

function figure(number) {
  if (number === null || number === undefined) return "–";
  const size = Math.abs(number);
  if (size === 0 || size >= 1000) return String(Math.round(number));
  return size < 0.1 ? String(Number(number.toPrecision(2))) : number.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0);
}

const tickLabel = value => Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-3) ? value.toExponential()
  : value.toLocaleString("en", {maximumFractionDigits: 6});

const SVG = "http://www.w3.org/2000/svg";
function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  node.append(...children);
  return node;
}

const arrow = better => ({higher: " (more is better)", lower: " (less is better)"}[better] || "");

// A check box for each of the names in the fieldset of that kind.
function ticks(kind, names, shown) {
  const holder = element(kind), active = document.activeElement;
  const focused = holder.contains(active) ? active.value : null;
  const labels = names.map(([name, text]) => {
    const label = document.createElement("label"), box = document.createElement("input");
    Object.assign(box, {type: "checkbox", value: name, checked: shown(name)});
    label.className = "tick";
    label.append(box, " " + text);
    return label;
  });
  const all = document.createElement("button"), none = document.createElement("button");
  Object.assign(all, {type: "button", value: "all", textContent: "all"});
  Object.assign(none, {type: "button", value: "none", textContent: "none"});
  all.setAttribute("aria-label", `all ${kind}`);
  none.setAttribute("aria-label", `none of the ${kind}`);
  holder.replaceChildren(holder.querySelector("legend"), ...labels, ...(names.length > 2 ? [all, none] : []));
  // What had the focus is a new element now.
  if (focused !== null) [...holder.querySelectorAll("input, button")].find(one => one.value === focused)?.focus();
}

// Keeps what is not ticked in hidden()[kind], a Set of names.
function listenToTicks(kind, hidden, changed) {
  element(kind).addEventListener("change", ({target}) => {
    hidden()[kind][target.checked ? "delete" : "add"](target.value);
    changed();
  });
  element(kind).addEventListener("click", ({target}) => {
    if (target.tagName !== "BUTTON") return;
    hidden()[kind] = new Set(target.value === "none" ?
      [...element(kind).querySelectorAll("input")].map(box => box.value) : []);
    changed();
  });
}

// A list of texts.
function listOf(texts) {
  const list = document.createElement("ul");
  list.append(...texts.map(text => Object.assign(document.createElement("li"), {textContent: text})));
  return list;
}

// Has the pointer and the arrow keys choose among what the holder shows. `at`: the place of what is under a node, if
// any; `count` and `chosen`: how many places there are, and which is chosen; `choose`: chooses one, returns its node.
function listenToChoice(holder, {at, count, chosen, choose}) {
  for (const kind of ["pointerover", "click"]) {
    holder.addEventListener(kind, ({target}) => {
      const place = at(target);
      if (place !== undefined) choose(place);
    });
  }
  holder.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    const last = count() - 1;
    const to = {Home: 0, End: last}[event.key] ?? (step && Math.min(Math.max(chosen() + step, 0), last));
    if (to === undefined || last < 0) return;
    event.preventDefault();
    choose(to)?.scrollIntoView({block: "nearest", inline: "nearest"});
  });
}

// `show` draws what the URL says: a link may lead to another view of the page that is open.
function listenToPage(show) {
  element("controls").addEventListener("submit", event => event.preventDefault());
  addEventListener("hashchange", show);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true; }));
}

// The view that the URL's fragment tells, as writeView writes it.
function viewOfURL(defaults, hidden) {
  const query = new URLSearchParams(location.hash.slice(1)), view = {hidden: {}};
  for (const key in defaults) view[key] = query.get(key) ?? defaults[key];
  for (const kind in hidden) view.hidden[kind] = new Set(query.getAll(hidden[kind]));
  return view;
}

// Puts what differs from the defaults into the URL's fragment. `hidden`: the names of its parameters, by what is hidden.
function writeView(view, defaults, hidden) {
  const query = new URLSearchParams();
  for (const key in defaults) if (view[key] !== defaults[key]) query.set(key, view[key]);
  for (const kind in hidden) for (const name of view.hidden[kind]) query.append(hidden[kind], name);
  const text = query.toString();
  if (location.hash.slice(1) !== text) history.replaceState(null, "", "#" + text);
}
