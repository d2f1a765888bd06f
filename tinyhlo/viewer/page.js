"use strict";
// Shows what describe.py wrote. State is the chosen program, view, kernel and form; `show` draws
// everything again from it.

const ROW = 24; // pixels, as in page.css
const ARCS = 60;
const NEAR = 60; // rows between the ends of curves that are drawn for all kernels
const SMALLEST = 0.6; // scale of a picture that does not fit
const SVG = "http://www.w3.org/2000/svg";
const state = { program: 0, view: "kernels", kernel: null, form: "picture" };
let data;

const at = (id) => document.getElementById(id);

// An element; attributes that are functions are what it does.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "rect", "text", "g", "title"].includes(tag);
  const made = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// ---------------------------------------------------------------- numbers

const digits = (number) => Number(number.toPrecision(3)); // 1020, not 1.02e+3

function duration(nanoseconds) {
  for (const [scale, unit] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]])
    if (nanoseconds >= scale) return `${digits(nanoseconds / scale)} ${unit}`;
  return nanoseconds ? `${Math.round(nanoseconds)} ns` : "–";
}

function size(bytes) {
  for (const [scale, unit] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (bytes >= scale) return `${digits(bytes / scale)} ${unit}`;
  return `${bytes} B`;
}

const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
const rate = (count, kernel) => // per nanosecond: 10^9 a second
  kernel.nanoseconds ? ((count * kernel.calls) / kernel.nanoseconds).toFixed(1) : "–";
const moved = (kernel) => kernel.read + kernel.written;
const shortLine = (line) => line.split(",")[0].split("/").slice(-2).join("/");

// ---------------------------------------------------------------- where values come from

// For each row the rows whose results it reads: the last that wrote the buffer, as printed.
function sources(rows) {
  const writer = new Map();
  return rows.map((row, k) => {
    const found = [...new Set(row.reads.map((b) => writer.get(b)).filter((j) => j !== undefined))];
    for (const buffer of row.writes) writer.set(buffer, k);
    return found;
  });
}

// The rows of each loop and branch, itself the first.
function blocks(rows) {
  return rows.flatMap((row, k) => {
    const end = rows.findIndex((other, j) => j > k && other.depth <= row.depth);
    const last = (end < 0 ? rows.length : end) - 1;
    return last > k ? [[k, last]] : [];
  });
}

// First and last row of each buffer's life. What is used in a loop and outside lives all through it.
function lives(program) {
  const found = new Map();
  const widen = (buffer, first, last) => {
    const [a, b] = found.get(buffer) ?? [first, last];
    found.set(buffer, [Math.min(a, first), Math.max(b, last)]);
  };
  program.rows.forEach((row, k) => [...row.reads, ...row.writes].forEach((b) => widen(b, k, k)));
  for (const [first, last] of blocks(program.rows))
    for (const [buffer, [a, b]] of found)
      if (a <= last && b >= first && (a < first || b > last)) widen(buffer, first, last);
  return found;
}

// ---------------------------------------------------------------- views of a program

function kernelsView(program) {
  const from = sources(program.rows);
  const chosen = program.rows.findIndex((row) => row.kernel === state.kernel);
  const before = new Set(chosen < 0 ? [] : from[chosen]);
  const after = new Set(from.flatMap((rows, k) => (rows.includes(chosen) ? [k] : [])));
  const most = Math.max(...program.kernels.map((kernel) => kernel.nanoseconds), 1);
  const heads = ["", "kernel", "your line", "time, of a call", "GFLOP/s", "GB/s"];
  const grid = make("div", { class: "rows" }, ...heads.map((h) => make("div", { class: "head" }, h)));
  program.rows.forEach((row, k) => {
    const kernel = program.kernels[row.kernel];
    const role = k === chosen || (kernel && row.kernel === state.kernel) ? "chosen"
      : before.has(k) ? "before" : after.has(k) ? "after" : "";
    const cell = (kind, text, more = {}) =>
      make("div", { class: `${kind} ${role} ${kernel ? "kernel" : ""}`, title: text, ...more,
        click: () => kernel && choose(row.kernel) }, text);
    const indent = `padding-left: ${0.5 + row.depth}em`;
    grid.append(make("div", { class: "empty" }));
    if (!kernel) {
      const names = row.writes.length ? row.writes : row.reads;
      const text = [row.what, ...names.map((b) => program.buffers[b].name)].join(" ");
      grid.append(cell("name comment", text, { style: indent }));
      for (let n = 0; n < 4; n++) grid.append(cell("", ""));
      return;
    }
    const share = `--share: ${((100 * kernel.nanoseconds) / most).toFixed(1)}%`;
    const each = kernel.calls ? kernel.nanoseconds / kernel.calls : 0;
    const calls = kernel.calls > 1 ? `, ${duration(each)}` : "";
    grid.append(
      cell("name", kernel.name, { style: indent }),
      cell("", shortLine(kernel.lines[0] ?? "")),
      cell("bar", duration(kernel.nanoseconds) + calls, { style: share }),
      cell("number", rate(kernel.flops, kernel)),
      cell("number", rate(moved(kernel), kernel)),
    );
  });
  return [grid, arcs(from, chosen)];
}

// Curves from where values are made to where they are read.
function arcs(from, chosen) {
  const drawn = make("svg", { class: "arcs", width: ARCS + 4, height: ROW * from.length });
  const middle = (k) => ROW * (k + 0.5);
  const draw = (a, b, role) => {
    const bend = Math.max(0, ARCS - 8 - 6 * Math.sqrt(b - a));
    const path = `M ${ARCS} ${middle(a)} C ${bend} ${middle(a)}, ${bend} ${middle(b)}, ${ARCS} ${middle(b)}`;
    drawn.append(make("path", { d: path, class: role }));
  };
  from.forEach((rows, k) => rows.forEach((j) => k - j <= NEAR && draw(j, k, "")));
  from.forEach((rows, k) => rows.forEach((j) => {
    if (k === chosen) draw(j, k, "before");
    if (j === chosen) draw(j, k, "after");
  }));
  return drawn;
}

function memoryView(program) {
  const places = {};
  for (const buffer of program.buffers)
    (places[buffer.place] ??= new Map()).set(buffer.position, buffer.bytes);
  const totals = Object.entries(places).filter(([place]) => !["arena", "scalar"].includes(place))
    .map(([place, found]) => `${found.size} ${place}s ${size(sum([...found.values()]))}`);
  const said = make("p", {}, [`arena ${size(program.arena)}`, ...totals].join(", "));
  if (!program.arena) return [said, make("p", { class: "comment" }, "no intermediate is written")];
  const step = Math.max(2, Math.min(40, (at("view").clientWidth - 90) / program.rows.length));
  const [width, height] = [step * program.rows.length, at("view").clientHeight - 60];
  const drawn = make("svg", { class: "memory", width: width + 80, height: height + 24 });
  const chosen = program.rows.findIndex((row) => row.kernel === state.kernel);
  if (chosen >= 0)
    drawn.append(make("rect", { class: "now", x: step * chosen, y: 0, width: step, height }));
  const life = lives(program);
  program.buffers.forEach((buffer, number) => {
    if (buffer.place !== "arena" || !life.has(number)) return;
    const [first, last] = life.get(number);
    const row = program.rows[chosen];
    const role = row?.reads.includes(number) ? "before" : row?.writes.includes(number) ? "after" : "";
    const writer = program.rows.find((r) => r.writes.includes(number) && r.kernel !== null);
    const about = `${buffer.name} ${buffer.type}, ${size(buffer.bytes)} at ${buffer.position}`;
    drawn.append(make("rect", {
      class: role, x: step * first, width: step * (last - first + 1),
      y: (height * buffer.position) / program.arena,
      height: Math.max(1, (height * buffer.bytes) / program.arena),
      click: () => writer && choose(writer.kernel),
    }, make("title", {}, writer ? `${about}\nof ${program.kernels[writer.kernel].name}` : about)));
  });
  const label = (x, y, text) => drawn.append(make("text", { x, y, class: "faint" }, text));
  label(0, height + 16, "from the first statement to the last");
  label(width + 6, 10, "0");
  label(width + 6, height, size(program.arena));
  return [said, drawn];
}

function sourceView(program) {
  const spent = new Map(); // line -> [nanoseconds, the kernel that takes most]
  program.kernels.forEach((kernel, k) => {
    const line = (kernel.lines[0] ?? "").split(",")[0];
    const [total, slowest] = spent.get(line) ?? [0, k];
    const slower = kernel.nanoseconds > program.kernels[slowest].nanoseconds ? k : slowest;
    spent.set(line, [total + kernel.nanoseconds, slower]);
  });
  const most = Math.max(...[...spent.values()].map(([total]) => total), 1);
  const paths = [...new Set([...spent.keys()].map((line) => line.split(":")[0]))];
  const shown = paths.filter((path) => data.sources[path]);
  if (!shown.length) return [make("p", {}, "no source file that could be read")];
  return shown.flatMap((path) => {
    const grid = make("div", { class: "source" });
    data.sources[path].split("\n").forEach((text, k) => {
      const [total, kernel] = spent.get(`${path}:${k + 1}`) ?? [0, null];
      const hot = kernel === null ? {} : { class: "hot", click: () => choose(kernel) };
      const share = `--share: ${((100 * total) / most).toFixed(1)}%`;
      grid.append(
        make("div", { class: "bar", style: share }, total ? duration(total) : ""),
        make("div", { class: "number" }, String(k + 1)), make("div", hot, text));
    });
    return [make("h3", {}, path), grid];
  });
}

// Text with what stands behind # or ; in grey.
function textView(text) {
  const shown = make("pre");
  for (const line of text.split("\n")) {
    const comment = line.search(/ # |^# |; /);
    if (comment < 0) shown.append(line + "\n");
    else shown.append(line.slice(0, comment),
      make("span", { class: "comment" }, line.slice(comment)), "\n");
  }
  return [shown];
}

// ---------------------------------------------------------------- the picture of a graph

// Nodes in layers, inputs above; within a layer in the order of what they are connected with.
function layered(nodes) {
  const layer = [];
  nodes.forEach((node, k) => { layer[k] = Math.max(-1, ...node.inputs.map((j) => layer[j])) + 1; });
  const users = nodes.map(() => []);
  nodes.forEach((node, k) => node.inputs.forEach((j) => users[j].push(k)));
  nodes.forEach((node, k) => { // what has no inputs stands above who reads it first
    if (!node.inputs.length && users[k].length)
      layer[k] = Math.min(...users[k].map((j) => layer[j])) - 1;
  });
  const layers = [];
  layer.forEach((depth, k) => (layers[depth] ??= []).push(k));
  const place = [];
  const number = (row) => row.forEach((k, n) => { place[k] = n / row.length; });
  layers.forEach(number);
  for (let sweep = 0; sweep < 8; sweep++)
    for (const row of sweep % 2 ? [...layers].reverse() : layers) {
      const near = (k) => (sweep % 2 ? users[k] : nodes[k].inputs);
      const wish = (k) => (near(k).length ? sum(near(k).map((j) => place[j])) / near(k).length
        : place[k]);
      const wishes = new Map(row.map((k) => [k, wish(k)]));
      row.sort((a, b) => wishes.get(a) - wishes.get(b));
      number(row);
    }
  return layers;
}

function picture(nodes) {
  const [gap, high, step] = [14, 32, 58];
  const width = nodes.map((node) => 14 + 6.7 * Math.max(node.label.length, node.type.length));
  const layers = layered(nodes);
  const total = (row) => sum(row.map((k) => width[k] + gap));
  const widest = Math.max(...layers.map(total), 0);
  const [x, y] = [[], []];
  layers.forEach((row, depth) => {
    let left = (widest - total(row)) / 2;
    for (const k of row) {
      [x[k], y[k]] = [left, 4 + depth * step];
      left += width[k] + gap;
    }
  });
  const [wide, tall] = [widest + 8, layers.length * step + 8];
  const scale = Math.min(1, Math.max(SMALLEST, (at("form").clientWidth - 4) / wide));
  const drawn = make("svg", { width: wide * scale, height: tall * scale,
    viewBox: `0 0 ${wide} ${tall}` });
  nodes.forEach((node, k) => node.inputs.forEach((j) => {
    const [a, b, top, bottom] = [x[j] + width[j] / 2, x[k] + width[k] / 2, y[j] + high, y[k]];
    const middle = (top + bottom) / 2;
    const path = `M ${a} ${top} C ${a} ${middle}, ${b} ${middle}, ${b} ${bottom}`;
    drawn.append(make("path", { d: path }));
  }));
  nodes.forEach((node, k) => {
    const kind = `node ${node.kind} ${node.result ? "result" : ""}`;
    drawn.append(make("g", { class: kind, transform: `translate(${x[k]} ${y[k]})` },
      make("rect", { width: width[k], height: high }),
      make("text", { x: 7, y: 13 }, node.label),
      make("text", { x: 7, y: 26, class: "faint" }, node.type),
      make("title", {}, node.line)));
  });
  return [drawn];
}

// ---------------------------------------------------------------- the page

const VIEWS = { kernels: kernelsView, memory: memoryView, "your source": sourceView };
for (const name of ["StableHLO", "graph", "program", "entry"])
  VIEWS[name] = (program) => textView(program.texts[name]);

const FORMS = { picture: (kernel) => picture(kernel.nodes) };
for (const name of ["graph", "loops", "llvm", "asm"])
  FORMS[name] = (kernel) => textView(kernel[name] || "none of its own: it calls a library, or is part of the entry");

function choose(kernel) {
  state.kernel = kernel;
  show();
}

function tabs(parent, names, key) {
  parent.replaceChildren(...names.map((name) => make("button", {
    role: "tab", "aria-selected": String(state[key] === name),
    click: () => { state[key] = name; show(); at(key).scrollTo(0, 0); },
  }, name)));
}

function show() {
  const program = data.programs[state.program];
  const kernel = program.kernels[state.kernel];
  const stages = Object.entries(program.seconds).map(([name, s]) => `${name} ${duration(1e9 * s)}`);
  at("summary").textContent = `${program.kernels.length} kernels, `
    + `${duration(sum(program.kernels.map((k) => k.nanoseconds)))} in them; compiled: `
    + `${stages.join(", ")}; ${program.target}`;
  tabs(at("views"), Object.keys(VIEWS), "view");
  tabs(at("forms"), Object.keys(FORMS), "form");
  at("view").replaceChildren(...VIEWS[state.view](program));
  at("kernel").textContent = kernel ? kernel.name : "no kernel chosen";
  at("about").textContent = !kernel ? "click one" : [
    kernel.lines.map(shortLine).join("; "), `${kernel.calls} calls`, `${kernel.flops.toLocaleString("en")} flops`,
    `${size(moved(kernel))} moved`, ...kernel.moves,
    ...kernel.why.map((why) => `in memory: ${why}`)].filter(Boolean).join(" · ");
  at("form").replaceChildren(...(kernel ? FORMS[state.form](kernel) : []));
}

// Arrows up and down choose the kernel before and after.
function step(event) {
  const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
  if (!by || event.target.tagName === "SELECT") return;
  event.preventDefault();
  const launched = data.programs[state.program].rows.map((row) => row.kernel)
    .filter((kernel) => kernel !== null);
  const next = launched.indexOf(state.kernel) + by;
  if (next >= 0 && next < launched.length) choose(launched[next]);
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

async function main() {
  data = await unpack(at("data").textContent);
  const spent = (program) => sum(program.kernels.map((kernel) => kernel.nanoseconds));
  const order = data.programs.map((_, k) => k)
    .sort((a, b) => spent(data.programs[b]) - spent(data.programs[a]));
  const select = at("programs");
  select.append(...order.map((k) => make("option", { value: k },
    `${data.programs[k].name}  ${duration(spent(data.programs[k]))}`)));
  const open = (k) => {
    const times = data.programs[k].kernels.map((kernel) => kernel.nanoseconds);
    Object.assign(state, { program: k, kernel: times.length ? times.indexOf(Math.max(...times)) : null });
    show();
  };
  select.addEventListener("change", () => open(Number(select.value)));
  document.addEventListener("keydown", step);
  open(order[0]);
}

main();
