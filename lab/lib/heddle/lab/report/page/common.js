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

// Puts what differs from the defaults into the URL's fragment. `hidden`: the names of its parameters, by what is hidden.
function writeView(view, defaults, hidden) {
  const query = new URLSearchParams();
  for (const key in defaults) if (view[key] !== defaults[key]) query.set(key, view[key]);
  for (const kind in hidden) for (const name of view.hidden[kind]) query.append(hidden[kind], name);
  const text = query.toString();
  if (location.hash.slice(1) !== text) history.replaceState(null, "", "#" + text);
}
