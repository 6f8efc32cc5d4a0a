// Run in the page; returns its problems, a sentence each.
() => {
  const problems = [];
  const say = (what, element) => problems.push(
    what + (element ? ": " + element.outerHTML.slice(0, 140).replace(/\s+/g, " ") : ""));
  const all = (selector) => [...document.querySelectorAll(selector)];
  const seen = (element) => element.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})
    && element.getBoundingClientRect().width > 1;

  if (!document.documentElement.lang) say("the page has no language");
  if (!document.title.trim()) say("the page has no title");
  for (const tag of ["main", "h1"]) if (all(tag).length !== 1) say(`${all(tag).length} <${tag}>`);
  if (all("body > header").length !== 1 || all("body > footer").length !== 1) say("landmarks are missing");
  for (const nav of all("nav")) if (!name(nav)) say("a <nav> without a name", nav);
  for (const section of all("section")) if (!name(section)) say("a <section> without a name", section);

  let level = 0;
  for (const heading of all("h1, h2, h3, h4").filter((each) => !each.closest("header.side"))) {
    const own = Number(heading.tagName[1]);
    if (own > level + 1) say(`h${own} after h${level}`, heading);
    level = own;
    if (!heading.textContent.trim()) say("an empty heading", heading);
  }

  function name(element) {
    const by = element.getAttribute("aria-labelledby");
    if (by) return by.split(/\s+/).map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim();
    const given = element.getAttribute("aria-label") || element.getAttribute("title");
    if (given) return given.trim();
    if (element.labels?.length) return [...element.labels].map((each) => each.textContent).join(" ").trim();
    if (["NAV", "SECTION"].includes(element.tagName)) return "";
    return element.textContent.trim();
  }
  for (const control of all("a[href], button, input:not([type=hidden]), select, textarea, summary"))
    if (!control.hidden && !name(control)) say("a control without a name", control);
  for (const input of all("input:not([type=hidden]), select, textarea"))
    if (!input.labels?.length && !input.getAttribute("aria-label")) say("a field without a label", input);
  for (const picture of all("[role=img], img")) if (!name(picture)) say("a picture without words", picture);
  for (const svg of all("svg"))
    if (svg.getAttribute("role") !== "img" && svg.getAttribute("aria-hidden") !== "true") say("an svg that is neither shown nor hidden", svg);

  const ids = new Map();
  for (const element of all("[id]")) ids.set(element.id, (ids.get(element.id) ?? 0) + 1);
  for (const [id, times] of ids) if (times > 1) say(`the id ${id} is there ${times} times`);
  for (const attribute of ["for", "aria-labelledby", "aria-describedby"])
    for (const element of all(`[${attribute}]`))
      for (const id of element.getAttribute(attribute).split(/\s+/))
        if (!ids.has(id)) say(`${attribute} names nothing`, element);

  for (const header of all("th")) if (!header.scope) say("a table header without a scope", header);
  for (const list of all("ul, ol"))
    for (const child of list.children) if (child.tagName !== "LI") say("a list with something else in it", child);
  for (const inner of all("a a, a button, button a, button button")) say("a control in a control", inner);

  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const painted = new Map();
  function rgba(color) {
    if (!painted.has(color)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = color;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      painted.set(color, [r, g, b, a / 255]);
    }
    return painted.get(color);
  }
  const over = ([r, g, b, a], below) => [r, g, b].map((value, i) => value * a + below[i] * (1 - a));
  function background(element) {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      if (color[3] > 0) layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  }
  const part = (value) => { const v = value / 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  function contrast(one, other) {
    const [a, b] = [light(one), light(other)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  }
  const told = new Set();
  function needs(element, color, least, what) {
    const below = background(element);
    const ratio = contrast(over(rgba(color), below), below);
    const key = `${what} ${color} ${below}`;
    if (ratio < least && !told.has(key)) {
      told.add(key);
      say(`${what} has a contrast of ${ratio.toFixed(2)}, not ${least}`, element);
    }
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.textContent.trim() || element.closest(".visually-hidden, .skip, svg, script, option") || !seen(element)) continue;
    const style = getComputedStyle(element);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    needs(element, style.color, large ? 3 : 4.5, "a text");
  }
  for (const shape of all("svg.icon, a.cell")) if (seen(shape)) needs(shape.parentElement, getComputedStyle(shape).color, 3, "a shape");
  for (const field of all("input:not([type=hidden]), select")) if (seen(field)) needs(field.parentElement, getComputedStyle(field).borderTopColor, 3, "a field's border");

  for (const control of all("button, input:not([type=hidden]), select, a.cell, nav a"))
    if (seen(control)) {
      const box = control.getBoundingClientRect();
      if (box.height < 23.5 || box.width < 23.5) say(`a target of ${box.width.toFixed(0)} × ${box.height.toFixed(0)}`, control);
    }
  if (document.documentElement.scrollWidth > window.innerWidth) say(`${document.documentElement.scrollWidth} wide in a window of ${window.innerWidth}`);
  return problems;
}
