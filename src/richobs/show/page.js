"use strict";
(() => {
  /* Numbers as words.py writes them; null and INFINITE stand for what JSON cannot hold (page.py). */
  const NONE = "–", INFINITE = 1e308;
  function scientific(x) {
    const [digits, power] = x.toExponential(2).split("e");
    const shown = digits.replace(/\.?0+$/, "");
    const times = `10^${Number(power)}`;
    return shown === "1" ? times : `${shown}·${times}`;
  }
  const count = (n) => (Math.abs(n) < 1e9 ? n.toLocaleString("en-US") : scientific(n));
  function value(x) {
    if (x === null) return NONE;
    if (Math.abs(x) >= INFINITE) return x < 0 ? "-∞" : "∞";
    if (x && (Math.abs(x) < 1e-4 || Math.abs(x) >= 1e6)) return scientific(x);
    return String(Number(x.toPrecision(4)));
  }
  function functions(power) {
    if (power === null) return NONE;
    if (power < Math.log10(99999.5)) return Math.round(10 ** power).toLocaleString("en-US");
    return `10^${power.toFixed(1)}`;
  }
  function raised(text) { // 10^3 with the 3 raised
    return String(text).split(/(?<=10)\^(-?[\d.]*\d)/).map((part, i) => (i % 2 ? element("sup", {}, part) : part));
  }
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, text] of Object.entries(attributes)) made.setAttribute(key, text);
    made.append(...children);
    return made;
  }

  /* Light and dark: what the system prefers until somebody decides. */
  const root = document.documentElement;
  const toggle = document.getElementById("theme");
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const showTheme = () => toggle.setAttribute("aria-pressed", String(isDark()));
  try { const kept = localStorage.getItem("richobs-theme"); if (kept === "dark" || kept === "light") root.dataset.theme = kept; } catch { /* a file may have no storage */ }
  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("richobs-theme", root.dataset.theme); } catch { /* shown anyway */ }
    showTheme();
  });
  prefersDark.addEventListener("change", showTheme);
  showTheme();

  /* A link to a run opens it; paper has no closed parts. */
  function reveal() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const closed = target && target.closest("details.run");
    if (closed && !closed.open) { closed.open = true; target.scrollIntoView(); }
  }
  addEventListener("hashchange", reveal);
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((d) => { d.open = true; }));

  /* A node is written with its last action and its parent, which comes before it; a row names the node of a long path. */
  function unfolded(data) {
    const nodes = [];
    for (const [action, mark, y, through, tests, unvisited, parent] of data.nodes) {
      const above = nodes[parent], [look, words] = data.marks[mark];
      const level = above ? above.level + 1 : 0;
      const path = !above ? "root" : above.level ? `${above.path} ${action}` : String(action);
      nodes.push({ path, level, look, words, x: 100 * level, y, through, tests, unvisited, parent, children: [] });
    }
    const where = (place) => (typeof place === "number" ? nodes[place].path : place);
    data.tests.forEach((row) => { row[3] = where(row[3]); });
    data.claims.forEach((row) => { row[2] = where(row[2]); });
    return { ...data, nodes };
  }

  /* Tables: only one page of rows is ever in the document. */
  const PAGE = 15;
  const COLUMNS = {
    tests: [["test", count], ["kind"], ["phase"], ["path", null, "path"], ["verdict"], ["statistic", value], ["threshold", value],
      ["episodes", (_, row) => row[11]], ["episodes so far", count], ["survivors before", functions], ["after", functions]],
    candidates: [["candidate", count], ["outcome"], ["episodes", count], ["batches", count], ["earned", value], ["promised", value], ["because", null, "words"]],
    claims: [["claim", count], ["statement"], ["path", null, "path"], ["episodes", count], ["share of delta", value], ["number in it", value]],
  };
  function table(box, rows) {
    const columns = COLUMNS[box.dataset.table];
    const [head, body, search, status] = ["thead", "tbody", "input", ".shown"].map((s) => box.querySelector(s));
    const [previous, next] = [box.querySelector(".prev"), box.querySelector(".next")];
    const show = (row, i) => (columns[i][1] ? columns[i][1](row[i], row) : row[i]);
    let texts = null; // made when somebody searches
    let found = rows, first = 0, sorted = 0, down = false;
    const line = element("tr");
    const heads = columns.map(([name, format], i) => {
      const button = element("button", { type: "button" }, name);
      const cell = element("th", { scope: "col" }, button);
      if (format) cell.className = "num";
      button.addEventListener("click", () => { down = sorted === i ? !down : false; sorted = i; order(); });
      line.append(cell);
      return cell;
    });
    head.append(line);
    function compare(a, b) {
      const [x, y] = [a[sorted], b[sorted]];
      if (x === y) return a[0] - b[0];
      if (x === null || y === null) return x === null ? -1 : 1;
      return typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true });
    }
    function order() {
      found = found.slice().sort((a, b) => (down ? compare(b, a) : compare(a, b)));
      first = 0;
      draw();
    }
    function find() {
      const wanted = search.value.toLowerCase().match(/\d\S*(?: \d+)*|\S+/g) || []; // words in any order; numbers side by side are a path
      texts = texts || rows.map((row) => columns.map((_, i) => show(row, i)).join("  ").toLowerCase());
      found = wanted.length ? rows.filter((_, i) => wanted.every((w) => texts[i].includes(w))) : rows;
      order();
    }
    function draw() {
      const last = Math.min(first + PAGE, found.length);
      body.replaceChildren(...found.slice(first, last).map((row) => element("tr", {}, ...columns.map(([, format, kind], i) => {
        const cell = i ? element("td") : element("th", { scope: "row" });
        cell.className = kind || (format ? "num" : "");
        cell.append(...(format ? raised(show(row, i)) : [show(row, i)]));
        return cell;
      }))));
      heads.forEach((cell, i) => cell.setAttribute("aria-sort", i === sorted ? (down ? "descending" : "ascending") : "none"));
      const all = found.length === rows.length ? count(rows.length) : `${count(found.length)} found of ${count(rows.length)}`;
      status.textContent = found.length ? `${count(first + 1)} to ${count(last)} of ${all}` : `none found of ${count(rows.length)}`;
      previous.disabled = first === 0;
      next.disabled = last >= found.length;
    }
    search.addEventListener("input", find);
    previous.addEventListener("click", () => { first = Math.max(0, first - PAGE); draw(); });
    next.addEventListener("click", () => { first += PAGE; draw(); });
    draw();
  }

  /* The tree: levels stretch to a readable distance and no farther, rows stretch as far as one likes. */
  const MARGIN = { left: 26, right: 34, top: 46, bottom: 56 };
  const WIDEST_LEVEL = 190, ROOMY = 44, CLOSEST = 14;
  function tree(box, data) {
    const svg = box.querySelector("svg.tree");
    const world = svg.querySelector(".world"), labels = svg.querySelector(".labels"), levels = svg.querySelector(".levels");
    const trail = svg.querySelector(".trail"), details = box.querySelector(".details");
    const marks = [...svg.querySelectorAll(".node")];
    const nodes = data.nodes;
    nodes.forEach((n, i) => { if (n.parent >= 0) nodes[n.parent].children.push(i); });
    nodes.forEach((n, i) => {
      const family = n.parent >= 0 ? nodes[n.parent].children : [i];
      const facts = { "aria-level": n.level + 1, "aria-posinset": family.indexOf(i) + 1, "aria-setsize": family.length, "aria-selected": false };
      for (const [name, fact] of Object.entries(facts)) marks[i].setAttribute(name, fact);
    });
    const wide = Number(svg.dataset.width), tall = Number(svg.dataset.height), rows = Number(svg.dataset.rows);
    const depth = Math.max(1, Math.round(wide / 100));
    svg.style.setProperty("--tall", `${rows * 30 + MARGIN.top + MARGIN.bottom}px`);
    svg.setAttribute("preserveAspectRatio", "xMinYMin meet");
    let width = 0, height = 0, zoom = 1, left = 0, top = 0, focus = 0, selected = -1, shown = -1;
    const fitted = () => ({ kx: (width - MARGIN.left - MARGIN.right) / wide, ky: (height - MARGIN.top - MARGIN.bottom) / tall });
    const widest = (kx) => Math.max(2 * kx, WIDEST_LEVEL / 100);
    function scales() {
      const { kx, ky } = fitted();
      return { kx: Math.min(kx * zoom, widest(kx)), ky: ky * zoom };
    }
    const limit = () => { const { kx, ky } = fitted(); return Math.max(2, ROOMY / (20 * ky), widest(kx) / kx); };
    function clamp() {
      const { kx, ky } = scales();
      const slack = (size, whole, before, after) => [Math.min(before, size - after - whole), Math.max(before, size - after - whole)];
      const [x0, x1] = slack(width, wide * kx, MARGIN.left, MARGIN.right);
      const [y0, y1] = slack(height, tall * ky, MARGIN.top, MARGIN.bottom);
      left = Math.min(Math.max(left, x0), x1);
      top = Math.min(Math.max(top, y0), y1);
    }
    let waiting = false;
    function redraw() { if (!waiting) { waiting = true; requestAnimationFrame(() => { waiting = false; draw(); }); } }
    function draw() {
      if (!width) return;
      clamp();
      const { kx, ky } = scales();
      const gap = Math.min(ky * 20, kx * 60);
      const size = Math.min(1.25, Math.max(0.4, gap / 17));
      world.setAttribute("transform", `translate(${left} ${top}) scale(${kx} ${ky})`);
      world.style.setProperty("--ix", size / kx);
      world.style.setProperty("--iy", size / ky);
      world.style.setProperty("--rim", size < 0.6 ? 0.3 : 1);
      world.style.setProperty("--faint", size < 0.6 ? 0.3 : 0.5);
      svg.classList.toggle("zoomed", zoom > 1.01);
      svg.dataset.zoom = zoom.toFixed(3);
      const text = (x, y, words, anchor) => {
        const made = document.createElementNS(svg.namespaceURI, "text");
        made.setAttribute("x", x); made.setAttribute("y", y); made.setAttribute("text-anchor", anchor); made.textContent = words;
        return made;
      };
      const every = Math.max(1, Math.ceil(26 / (kx * 100)));
      const heads = [];
      for (let h = 0; h <= depth; h += every) {
        const x = left + h * 100 * kx;
        if (x > -10 && x < width + 10) heads.push(text(x, 20, h === 0 && kx * 100 > 64 ? "level 0" : h, h === 0 ? "start" : "middle"));
      }
      levels.replaceChildren(...heads);
      const seen = [];
      if (ky * 20 >= CLOSEST && kx * 100 >= 34) {
        for (const n of nodes) {
          const x = left + n.x * kx, y = top + n.y * ky;
          if (n.parent < 0 || x < -20 || x > width + 20 || y < -20 || y > height + 20) continue;
          seen.push(text(x - 11 * size - 2, y - 3, n.path.split(" ").pop(), "end"));
        }
      }
      labels.replaceChildren(...seen);
    }
    function zoomBy(factor, x = width / 2, y = height / 2) {
      const before = scales();
      const [atX, atY] = [(x - left) / before.kx, (y - top) / before.ky];
      zoom = Math.min(Math.max(zoom * factor, 1), limit());
      const after = scales();
      left = x - atX * after.kx;
      top = y - atY * after.ky;
      redraw();
    }
    function fit() { zoom = 1; left = MARGIN.left; top = MARGIN.top; redraw(); }
    function bringIntoView(n) {
      const { kx, ky } = scales();
      const x = left + n.x * kx, y = top + n.y * ky;
      if (x < 30) left += 30 - x; else if (x > width - 40) left -= x - width + 40;
      if (y < 40) top += 40 - y; else if (y > height - 50) top -= y - height + 50;
      redraw();
    }
    const nearest = (event) => {
      const at = svg.getBoundingClientRect(), { kx, ky } = scales();
      const [x, y] = [event.clientX - at.left - left, event.clientY - at.top - top];
      let best = -1, least = 22 ** 2;
      nodes.forEach((n, i) => { const d = (n.x * kx - x) ** 2 + (n.y * ky - y) ** 2; if (d < least) { least = d; best = i; } });
      return best;
    };

    function tell(i) {
      if (i === shown) return;
      if (shown >= 0) marks[shown].classList.remove("on");
      shown = i;
      if (i < 0) return;
      marks[i].classList.add("on");
      const n = nodes[i];
      let way = "";
      for (let j = i; nodes[j].parent >= 0; j = nodes[j].parent) {
        const p = nodes[nodes[j].parent];
        way += `M${p.x} ${p.y}C${p.x + 50} ${p.y} ${p.x + 50} ${nodes[j].y} ${nodes[j].x} ${nodes[j].y}`;
      }
      trail.setAttribute("d", way);
      const list = (pairs) => element("dl", {}, ...pairs.flatMap(([k, v]) => [element("dt", {}, k), element("dd", {}, ...raised(v))]));
      const what = element("p", { class: "what" });
      const key = document.createElementNS(svg.namespaceURI, "svg");
      for (const [k, v] of [["viewBox", "-9 -9 18 18"], ["width", 18], ["height", 18], ["class", "key"], ["aria-hidden", "true"]]) key.setAttribute(k, v);
      const shape = document.createElementNS(svg.namespaceURI, "path");
      shape.setAttribute("class", `mark ${n.look}`);
      shape.setAttribute("d", marks[i].getAttribute("d"));
      key.append(shape);
      what.append(key, n.words);
      const facts = [["level", String(n.level)], ["episodes through here", count(n.through)], ["tests", count(n.tests.length)]];
      if (n.unvisited.length) facts.push(["never played here", (n.unvisited.length === 1 ? "action " : "actions ") + n.unvisited.join(", ")]);
      const latest = n.tests.slice(-6).reverse();
      const tests = latest.map((t) => {
        const [number, kind, phase, , verdict, statistic, threshold, , , before, after, episodes, text] = data.tests[t];
        const [question, first, second] = data.texts[text];
        const head = element("p", {}, element("b", {}, `${kind}: ${verdict}`), ` `, element("small", {}, `test ${number}, ${phase}`));
        if (question) head.append(element("br"), element("small", {}, question));
        return element("div", { class: "test" }, head, list([[first, value(statistic)], [second, value(threshold)],
          ["episodes (n)", episodes], ...(after === null ? [] : [["survivors", `${functions(before)} → ${functions(after)}`]])]));
      });
      if (n.tests.length > latest.length) tests.push(element("p", { class: "hint" }, `and ${count(n.tests.length - latest.length)} earlier ones, in the table of all tests`));
      details.replaceChildren(element("p", { class: "where" }, n.parent < 0 ? "The root" : `Path ${n.path}`), what, list(facts), ...tests);
    }
    function select(i) {
      if (selected >= 0) marks[selected].setAttribute("aria-selected", "false");
      selected = i;
      if (i >= 0) { marks[i].setAttribute("aria-selected", "true"); tell(i); }
    }
    function moveTo(i) {
      marks[focus].setAttribute("tabindex", "-1");
      focus = i;
      marks[i].setAttribute("tabindex", "0");
      marks[i].focus({ preventScroll: true });
      bringIntoView(nodes[i]);
    }
    function beside(i, step) { // the next node of the same level, siblings or not
      for (let j = i + step; j >= 0 && j < nodes.length; j += step) if (nodes[j].x === nodes[i].x) return j;
      return i;
    }
    svg.addEventListener("focusin", (event) => { const i = marks.indexOf(event.target); if (i >= 0) { focus = i; tell(i); } });
    svg.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const n = nodes[focus];
      const moves = { ArrowRight: n.children[0] ?? focus, ArrowLeft: n.parent >= 0 ? n.parent : focus, ArrowDown: beside(focus, 1), ArrowUp: beside(focus, -1), Home: 0, End: nodes.length - 1 };
      if (event.key in moves) moveTo(moves[event.key]);
      else if (event.key === "Enter" || event.key === " ") select(focus);
      else if (event.key === "+" || event.key === "=") { const { kx, ky } = scales(); zoomBy(1.5, left + n.x * kx, top + n.y * ky); }
      else if (event.key === "-") zoomBy(1 / 1.5);
      else if (event.key === "0") fit();
      else return;
      event.preventDefault();
    });
    box.querySelectorAll("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
      if (button.dataset.zoom === "fit") fit(); else zoomBy(button.dataset.zoom === "in" ? 1.6 : 1 / 1.6);
    }));
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the wheel alone scrolls the page
      event.preventDefault();
      const at = svg.getBoundingClientRect();
      zoomBy(Math.exp(-event.deltaY / 250), event.clientX - at.left, event.clientY - at.top);
    }, { passive: false });
    svg.addEventListener("dblclick", (event) => { const at = svg.getBoundingClientRect(); zoomBy(2, event.clientX - at.left, event.clientY - at.top); });
    const fingers = new Map();
    let moved = 0;
    svg.addEventListener("pointerdown", (event) => { fingers.set(event.pointerId, event); moved = 0; });
    svg.addEventListener("pointermove", (event) => {
      const before = fingers.get(event.pointerId);
      if (!before) { if (event.pointerType === "mouse") { const i = nearest(event); if (i >= 0) tell(i); } return; }
      if (fingers.size === 1) {
        const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
        moved += Math.abs(dx) + Math.abs(dy);
        if (moved > 4) { svg.setPointerCapture(event.pointerId); svg.classList.add("dragging"); left += dx; top += dy; redraw(); }
      } else if (fingers.size === 2) {
        const other = [...fingers.values()].find((f) => f.pointerId !== event.pointerId);
        const apart = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY) || 1;
        const at = svg.getBoundingClientRect();
        moved += 9;
        zoomBy(apart(event) / apart(before), (event.clientX + other.clientX) / 2 - at.left, (event.clientY + other.clientY) / 2 - at.top);
      }
      fingers.set(event.pointerId, event);
    });
    const lift = (event) => {
      if (!fingers.delete(event.pointerId)) return;
      svg.classList.remove("dragging");
      if (event.type === "pointerup" && moved <= 4) { const i = nearest(event); if (i >= 0) { select(i); moveTo(i); } }
    };
    svg.addEventListener("pointerup", lift);
    svg.addEventListener("pointercancel", lift);
    svg.addEventListener("pointerleave", () => { if (selected >= 0) tell(selected); });
    new ResizeObserver(() => {
      const at = svg.getBoundingClientRect();
      if (!at.width || (at.width === width && at.height === height)) return;
      const first = !width;
      width = at.width; height = at.height;
      svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      if (first) fit();
      draw();
    }).observe(svg);
  }

  document.querySelectorAll('script[type="application/json"]').forEach((script) => {
    const data = unfolded(JSON.parse(script.textContent));
    const run = script.id.replace(/-data$/, "");
    document.querySelectorAll(`[data-run="${run}"]`).forEach((box) => (box.dataset.table ? table(box, data[box.dataset.table]) : tree(box, data)));
  });
  reveal();
})();
