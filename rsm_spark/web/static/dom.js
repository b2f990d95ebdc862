// Elements from values. What a tenant typed is text here, always: there is no way in this file to make markup of it.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: `el("td", {class: "num", onclick: f}, "text", child, null)`. */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** Make an SVG element. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled" || name === "hidden") node[name] = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Put text into a node, only if it is another one: selections and screen readers are left alone. */
export function setText(node, text) {
  const wanted = String(text);
  if (node.textContent !== wanted) node.textContent = wanted;
}

/** Bring the children of a node in line with items, by key: those that stay keep focus, scroll and selection. */
export function reconcile(parent, items, key, create, update) {
  const known = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  const wanted = new Set(items.map((item) => String(key(item))));
  // Those that go, go first: so none that stays has to be moved for them, which would take its focus.
  for (const [name, node] of known) if (!wanted.has(name)) node.remove();
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let node = known.get(name);
    if (node === undefined) {
      node = create(item);
      node.dataset.key = name;
    }
    update(node, item);
    if (node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
}

/** An icon of a path on a 20 by 20 grid. */
export function icon(path) {
  return svg("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" }, svg("path", { d: path }));
}
