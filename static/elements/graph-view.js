/**
 * <graph-view>: the butterfly. SVG holds boxes, labels and edges; one canvas above it holds every histogram. Boxes are
 * walked with the arrow keys, and a table says the same to a screen reader.
 *
 * Set `picture`, `statistic`, `selection`, `camera`; call `reveal(id)`. Events, bubbling: `box-select` {id},
 * `scene-change` {scene, key}, `axis-change` {positions, width}, `camera-change` {zoom, at}.
 */

import { emit, html, svg } from "../core/dom.js";
import { shape } from "../core/format.js";
import { drawBars } from "../core/histogram.js";
import { describeTensor, figure, labelLines } from "../core/labels.js";
import { neighbour } from "../core/navigation.js";
import { hue, onSchemeChange, readPalette } from "../core/palette.js";
import { StripImage } from "../core/strip-image.js";
import { INSET, STRIP_WIDTH, levelOf, textWidth } from "../core/text-fit.js";
import { clampShare, offset, splitZoom } from "../core/viewport.js";

/** @typedef {import("../core/types.js").Picture} Picture */
/** @typedef {import("../core/types.js").Scene} Scene */
/** @typedef {import("../core/types.js").Layout} Layout */
/** @typedef {import("../core/types.js").Box} Box */
/** @typedef {import("../core/types.js").Tensor} Tensor */
/** @typedef {import("../core/types.js").Statistic} Statistic */
/** @typedef {import("../core/layout-worker.js").LayoutRequest} LayoutRequest */
/** @typedef {import("../core/layout-worker.js").LayoutAnswer} LayoutAnswer */

/** @typedef {{root: SVGGElement, frame: SVGRectElement, name: SVGTextElement, value: SVGTextElement, title: SVGTitleElement}} BoxParts */

/** @type {[number, number]} */
const UNSEEN = [800, 600];
const HEADER = 17;
const REST_MS = 250;
const ZOOM_STEP = 1.3;
const NARROW_SCREEN = "(max-width: 899px)";

/** @param {string} hueName @returns {SVGMarkerElement} an arrowhead */
function arrowhead(hueName) {
  const attributes = { id: `arrow-${hueName}`, class: hueName, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" };
  return svg("marker", attributes, svg("path", { d: "M0.5 1 7 4 0.5 7z" }));
}

class GraphView extends HTMLElement {
  /** The picture on the screen. @type {Picture | null} */
  #picture = null;
  /** A picture of another shape, until its layout is there. @type {Picture | null} */
  #next = null;
  /** @type {Scene | null} */
  #scene = null;
  /** @type {Layout | null} */
  #layout = null;
  #layoutKey = "";
  #sentKey = "";
  #request = 0;
  #applied = 0;
  /** @type {Statistic} */
  #statistic = "std";
  #selection = "";
  #focused = "";
  /** A box to be brought into view, as soon as there is a view. */
  #wanted = "";
  /** While zooming, what stays under the pointer: a share of a box. @type {{id: string, share: number, pointer: number} | null} */
  #pinned = null;
  #camera = { zoom: 1, at: 0, across: 0.5 };
  #magnify = 1;
  #start = { x: 0, y: 0 };
  /** Of the stage, in px. */
  #size = { width: 0, height: 0 };
  #rest = 0;
  /** @type {Map<string, BoxParts>} */
  #parts = new Map();
  /** @type {Map<string, Tensor>} scene id → tensor */
  #tensors = new Map();
  #palette = readPalette();
  #strips = new StripImage();
  #narrow = matchMedia(NARROW_SCREEN);
  #worker = new Worker(new URL("../core/layout-worker.js", import.meta.url), { type: "module" });

  #stage = document.createElement("div");
  #svg = svg("svg", { class: "graph-svg", role: "group", "aria-label": "Computation graph: arrow keys walk, Enter inspects" });
  #world = svg("g");
  #edges = svg("g", { class: "edges" });
  #boxes = svg("g", { class: "boxes" });
  #sides = { forward: svg("text", { class: "side forward" }, "forward"), backward: svg("text", { class: "side backward" }, "backward") };
  #caption = html("p", { class: "caption" });
  #canvas = document.createElement("canvas");
  #table = document.createElement("table");

  connectedCallback() {
    const definitions = svg("defs");
    definitions.append(...["forward", "backward", "parameter", "neutral"].map(arrowhead));
    this.#world.append(this.#edges, this.#boxes);
    this.#svg.append(definitions, this.#sides.forward, this.#sides.backward, this.#world);
    this.#canvas.setAttribute("aria-hidden", "true");
    this.#stage.className = "stage";
    this.#stage.append(this.#svg, this.#canvas);
    this.#table.className = "visually-hidden";
    this.append(this.#stage, this.#caption, this.#zoomButtons(), this.#table);

    this.#worker.addEventListener("message", (/** @type {MessageEvent<LayoutAnswer>} */ { data }) => this.#receive(data));
    new ResizeObserver(() => {
      // Read once: asked for in every frame it would have the page laid out then and there.
      this.#size = { width: this.#stage.clientWidth, height: this.#stage.clientHeight };
      this.#askForLayout();
    }).observe(this.#stage);
    this.#narrow.addEventListener("change", () => this.#askForLayout());
    onSchemeChange(() => {
      this.#palette = readPalette();
      this.#paint();
    });
    this.#listen();
  }

  /** @param {Picture | null} picture */
  set picture(picture) {
    if (picture === null) return;
    if (picture.key === this.#layoutKey) {
      this.#picture = picture;
      this.#next = null;
      this.#update();
      return;
    }
    this.#next = picture;
    if (picture.key !== this.#sentKey) this.#askForLayout();
  }

  /** @param {Statistic} statistic */
  set statistic(statistic) {
    this.#statistic = statistic;
    this.#caption.replaceChildren(`number in a box: ${statistic}`, html("i"), "saved for backward");
    this.#update();
  }

  /** @param {string} id */
  set selection(id) {
    this.#selection = id;
    if (this.#parts.has(id)) this.#moveFocus(id, false);
    this.#mark();
  }

  /** @param {{zoom: number, at: number}} camera */
  set camera({ zoom, at }) {
    if (zoom === this.#camera.zoom && at === this.#camera.at) return;
    this.#pinned = null;
    this.#wanted = "";
    this.#camera = { ...this.#camera, zoom, at };
    this.#askForLayout();
  }

  /** Pans, once the graph is shown, as far as needed for a box to be seen. @param {string} id */
  reveal(id) {
    this.#wanted = id;
    this.#showWanted();
  }

  #showWanted() {
    // Before the layout of a panel that has just come into sight there is no telling what is in view.
    if (this.#wanted === "" || this.#size.width === 0 || this.#request !== this.#applied) return;
    this.#reveal(this.#wanted);
    this.#wanted = "";
  }

  /** Into the graph: to the box that the arrow keys go on from. @override */
  focus() {
    this.#moveFocus(this.#focused, true);
  }

  /** @returns {HTMLElement} */
  #zoomButtons() {
    const group = html("div", { class: "zoom", role: "group", "aria-label": "Zoom" });
    /** @type {[string, string, () => void][]} */
    const buttons = [
      ["−", "Zoom out (−)", () => this.#zoomBy(1 / ZOOM_STEP)],
      ["Fit", "Fit to the panel (0)", () => this.#fit()],
      ["+", "Zoom in (+)", () => this.#zoomBy(ZOOM_STEP)],
    ];
    for (const [text, label, act] of buttons) {
      const button = html("button", { type: "button", title: label, "aria-label": label }, text);
      button.addEventListener("click", act);
      group.append(button);
    }
    return group;
  }

  #listen() {
    this.#svg.addEventListener("click", (event) => emit(this, "box-select", { id: this.#idAt(event.target) }));
    this.#svg.addEventListener("focusin", (event) => this.#moveFocus(this.#idAt(event.target), false));
    this.#svg.addEventListener("keydown", (event) => this.#key(event));
    this.#svg.addEventListener("pointerover", (event) => this.#hover(this.#idAt(event.target)));
    this.#svg.addEventListener("pointerleave", () => this.#hover(""));
    this.#stage.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    this.#stage.addEventListener("pointerdown", (event) => this.#drag(event));
  }

  /** @param {EventTarget | null} target @returns {string} */
  #idAt(target) {
    const box = target instanceof Element ? target.closest("[data-id]") : null;
    return box?.getAttribute("data-id") ?? "";
  }

  // Layout

  get #isVertical() {
    return this.#narrow.matches;
  }

  /** @returns {{length: number, breadth: number}} */
  get #room() {
    const { clientWidth, clientHeight } = this.#stage;
    // In a tab that is not shown there is no room; the scene is wanted all the same.
    const [width, height] = clientWidth > 0 && clientHeight > 0 ? [clientWidth, clientHeight] : UNSEEN;
    return this.#isVertical ? { length: height, breadth: width } : { length: width, breadth: height };
  }

  #askForLayout() {
    const picture = this.#next ?? this.#picture;
    const { length, breadth } = this.#room;
    if (picture === null) return;
    const { spread } = splitZoom(this.#camera.zoom, this.#layout?.natural ?? 0, length);
    this.#request += 1;
    /** @type {LayoutRequest} */
    const message = {
      request: this.#request,
      key: picture.key,
      topology: picture.key === this.#sentKey ? null : picture.topology,
      options: { orientation: this.#isVertical ? "vertical" : "horizontal", length: length * spread, breadth },
    };
    this.#sentKey = picture.key;
    this.#worker.postMessage(message);
  }

  /** @param {LayoutAnswer} answer */
  #receive({ request, key, scene, layout }) {
    if (request < this.#applied || key !== this.#sentKey) return;
    this.#applied = request;
    const isNew = key !== this.#layoutKey;
    const wasUnmeasured = this.#layout === null || isNew;
    if (this.#next?.key === key) {
      this.#picture = this.#next;
      this.#next = null;
    }
    this.#layout = layout;
    this.#layoutKey = key;
    if (scene !== null) {
      this.#scene = scene;
      const byId = new Map(this.#picture?.topology.tensors.map((tensor) => [tensor.id, tensor]));
      this.#tensors = new Map(scene.tensors.flatMap(({ id, tensor }) => {
        const found = byId.get(tensor);
        return found === undefined ? [] : [[id, found]];
      }));
    }
    this.#build();
    this.#place();
    this.#update();
    if (scene !== null) emit(this, "scene-change", { scene, key });
    if (this.#pinned !== null) this.#tellCamera();
    this.#showWanted();
    // How far a zoom spreads the columns depends on the layout's natural length, known only now.
    if (wasUnmeasured && this.#camera.zoom > 1) this.#askForLayout();
  }

  /** Boxes and edges of the layout, reusing the elements that are there. */
  #build() {
    const [layout, scene] = [this.#layout, this.#scene];
    if (layout === null || scene === null) return;
    const groups = new Map(scene.groups.map((group) => [group.id, group]));
    /** @type {Map<string, BoxParts>} */
    const parts = new Map();
    for (const box of layout.boxes) {
      const made = this.#parts.get(box.id) ?? this.#makeBox(box);
      this.#parts.delete(box.id);
      parts.set(box.id, made);
      const tensor = this.#tensors.get(box.id);
      const kind = tensor === undefined ? `op ${box.half}` : `tensor ${hue(box.half, tensor.role)}`;
      made.root.setAttribute("class", `box ${kind}`);
      const name = tensor?.name ?? groups.get(box.id)?.label ?? box.id;
      this.#shapeBox(made, box, name, tensor !== undefined && tensor.shape.reduce((product, size) => product * size, 1) === 1);
    }
    for (const stale of this.#parts.values()) stale.root.remove();
    this.#parts = parts;
    this.#boxes.append(...[...parts.values()].map(({ root }) => root));

    const drawn = layout.routes.map(({ edge, points }) => {
      const role = this.#tensors.get(edge.kind === "satellite" && edge.half === "forward" ? edge.source : "")?.role ?? "";
      const colour = edge.kind === "saved" ? "saved" : hue(edge.half, role);
      const path = svg("path", { class: `edge ${edge.kind} ${colour}`, d: pathOf(points) });
      path.dataset["source"] = edge.source;
      path.dataset["target"] = edge.target;
      const [x = 0, y = 0] = points;
      const isShort = Math.hypot((points.at(-2) ?? 0) - x, (points.at(-1) ?? 0) - y) < 9;
      const isCramped = Math.min(this.#widthOf(edge.source), this.#widthOf(edge.target)) < STRIP_WIDTH;
      if (isCramped) path.classList.add("cramped");
      if (edge.kind !== "saved" && !isShort && !isCramped) path.setAttribute("marker-end", `url(#arrow-${colour})`);
      return path;
    });
    this.#edges.replaceChildren(...drawn);
    if (!this.#parts.has(this.#focused)) this.#focused = scene.tensors.find(({ satellite }) => satellite === null)?.id ?? "";
    for (const [id, { root }] of parts) root.setAttribute("tabindex", id === this.#focused ? "0" : "-1");
    this.#mark();
    this.#settle();
  }

  /** @param {string} id @returns {number} */
  #widthOf(id) {
    return Number(this.#parts.get(id)?.frame.getAttribute("width") ?? 0);
  }

  /** @param {Box} box @returns {BoxParts} */
  #makeBox(box) {
    const root = svg("g", { role: "button" });
    root.dataset["id"] = box.id;
    const frame = svg("rect", { class: "frame" });
    const name = svg("text", { class: "name" });
    const value = svg("text", { class: "value" });
    const title = svg("title");
    root.append(title, frame, name, value);
    return { root, frame, name, value, title };
  }

  /** @param {BoxParts} parts @param {Box} box @param {string} label @param {boolean} isScalar */
  #shapeBox({ root, frame, name, value }, box, label, isScalar) {
    const { w, h } = box;
    root.setAttribute("transform", `translate(${box.x.toFixed(2)} ${box.y.toFixed(2)})`);
    frame.setAttribute("width", w.toFixed(2));
    frame.setAttribute("height", h.toFixed(2));
    frame.setAttribute("rx", String(Math.min(box.kind === "op" ? 8 : 4, w / 3)));
    const level = levelOf(label, w);
    root.dataset["level"] = level;
    root.dataset["scalar"] = String(isScalar);
    const lines = box.kind === "op" ? labelLines(label) : [label];
    const size = box.kind === "op" ? (lines.length > 1 ? 11 : 12) : level === "wide" ? 11 : 10;
    const fits = level !== "strip" && lines.every((line) => textWidth(line, `600 ${size}px`) + 2 <= w) && lines.length * size < h;
    const spans = lines.map((line, order) => svg("tspan", order === 0 ? {} : { x: (w / 2).toFixed(1), dy: "1.1em" }, line));
    name.replaceChildren(...(fits ? spans : []));
    name.style.fontSize = `${size}px`;
    const isCentred = box.kind === "op" || level === "narrow" || isScalar;
    name.setAttribute("text-anchor", isCentred ? "middle" : "start");
    name.setAttribute("x", (isCentred ? w / 2 : INSET).toFixed(1));
    name.setAttribute("y", (box.kind === "op" ? h / 2 + 4 - (lines.length - 1) * 6 : isScalar ? h / 2 - 5 : 13).toFixed(1));
    value.setAttribute("text-anchor", isCentred ? "middle" : "end");
    value.setAttribute("x", (isCentred ? w / 2 : w - INSET).toFixed(1));
    value.setAttribute("y", (isScalar ? h / 2 + 13 : level === "narrow" ? h - 5 : 13).toFixed(1));
  }

  // Placing and painting

  /** Zoom and pan, as far as the layout in hand goes. */
  #place() {
    const layout = this.#layout;
    if (layout === null) return;
    const { length, breadth } = this.#room;
    const { magnify, zoom } = splitZoom(this.#camera.zoom, layout.natural, length);
    this.#camera.zoom = zoom;
    this.#magnify = magnify;
    const [long, broad] = this.#isVertical ? [layout.height, layout.width] : [layout.width, layout.height];
    this.#followPin(layout, long * magnify);
    const along = offset(long * magnify, length, this.#camera.at);
    const across = offset(broad * magnify, breadth, this.#camera.across);
    this.#start = this.#isVertical ? { x: across, y: along } : { x: along, y: across };
    this.#world.setAttribute("transform", `translate(${this.#start.x} ${this.#start.y}) scale(${magnify})`);
    this.#stage.classList.toggle("pannable", long * magnify > length + 1 || broad * magnify > breadth + 1);

    for (const half of /** @type {const} */ (["forward", "backward"])) {
      const row = layout.boxes.find((box) => box.kind === "op" && box.half === half);
      const level = this.#start.y + ((row?.y ?? 0) + (row?.h ?? 0) / 2) * magnify;
      this.#sides[half].setAttribute("transform", `translate(${Math.min(18, this.#start.x + 18)} ${level}) rotate(-90)`);
      this.#sides[half].classList.toggle("absent", this.#isVertical || row === undefined);
    }
    /** @type {Map<string, number>} */
    const positions = new Map();
    for (const box of layout.boxes) {
      const tensor = this.#tensors.get(box.id);
      if (tensor !== undefined) positions.set(tensor.id, this.#start.x + (box.x + box.w / 2) * magnify);
    }
    if (this.#isVertical) positions.clear();
    // Out of sight it lines up with nothing.
    if (this.#isVertical || this.#size.width > 0) emit(this, "axis-change", { positions, width: this.#size.width });
    this.#paint();
  }

  /** The numbers of the picture: labels now, what only a screen reader sees once the slider rests. */
  #update() {
    const picture = this.#picture;
    if (picture === null || this.#layout === null) return;
    for (const [id, { root, frame, value }] of this.#parts) {
      const tensor = this.#tensors.get(id);
      if (tensor === undefined) continue;
      if (root.dataset["level"] === "strip") {
        value.textContent = "";
        continue;
      }
      const { text, short, isWarning } = figure(picture, tensor, this.#statistic);
      root.classList.toggle("warning", isWarning);
      const width = Number(frame.getAttribute("width"));
      if (root.dataset["scalar"] === "true") {
        const size = [14, 11, 9].find((candidate) => textWidth(text, `600 ${candidate}px`) + 4 <= width);
        value.style.fontSize = `${size ?? 9}px`;
        value.textContent = size === undefined ? "" : text;
      } else {
        const isBeside = root.dataset["level"] !== "narrow";
        const room = width - (isBeside ? textWidth(tensor.name, "600 11px") + 2 * INSET : 0);
        value.textContent = [text, short].find((candidate) => textWidth(candidate, "11px") + 2 <= room) ?? "";
      }
    }
    this.#paint();
    this.#settle();
  }

  #settle() {
    clearTimeout(this.#rest);
    this.#rest = setTimeout(() => this.#describe(), REST_MS);
  }

  #paint() {
    const [picture, layout] = [this.#picture, this.#layout];
    const context = this.#canvas.getContext("2d");
    if (picture === null || layout === null || context === null) return;
    const ratio = devicePixelRatio;
    const { width, height } = this.#size;
    if (width === 0) return;
    if (this.#canvas.width !== Math.round(width * ratio) || this.#canvas.height !== Math.round(height * ratio)) {
      this.#canvas.width = Math.round(width * ratio);
      this.#canvas.height = Math.round(height * ratio);
    }
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    const k = this.#magnify;
    this.#strips.start(this.#canvas.width, this.#canvas.height);
    /** Bars go on the canvas after the strips, which replace what is there. @type {(() => void)[]} */
    const bars = [];
    for (const box of layout.boxes) {
      const tensor = this.#tensors.get(box.id);
      const row = tensor === undefined ? undefined : picture.rows.get(tensor.id);
      const parts = this.#parts.get(box.id);
      if (tensor === undefined || row === undefined || parts === undefined) continue;
      const at = { x: this.#start.x + box.x * k, y: this.#start.y + box.y * k, w: box.w * k, h: box.h * k };
      if (at.x > width || at.x + at.w < 0 || at.y > height || at.y + at.h < 0) continue;
      const paint = { ink: this.#palette[hue(box.half, tensor.role)], muted: this.#palette.muted, warning: this.#palette.warning };
      if (parts.root.dataset["level"] === "strip") {
        this.#strips.draw(picture, row, { x: at.x * ratio, y: at.y * ratio, w: at.w * ratio, h: at.h * ratio }, paint);
      } else if (parts.root.dataset["scalar"] !== "true") {
        const narrow = parts.root.dataset["level"] === "narrow";
        const inset = narrow ? 3 : INSET;
        const top = HEADER * k;
        const bottom = (narrow ? 15 : 4) * k;
        const plot = { x: at.x + inset, y: at.y + top, w: at.w - 2 * inset, h: Math.max(4, at.h - top - bottom) };
        bars.push(() => drawBars(context, picture, row, plot, paint));
      }
    }
    this.#strips.onto(context);
    for (const draw of bars) draw();
  }

  /** Names for a screen reader and the table twin. */
  #describe() {
    const [picture, scene] = [this.#picture, this.#scene];
    if (picture === null || scene === null) return;
    const rows = [];
    for (const [id, { root, title }] of this.#parts) {
      const tensor = this.#tensors.get(id);
      const group = scene.groups.find((candidate) => candidate.id === id);
      const text =
        tensor !== undefined ? describeTensor(picture, tensor) : group === undefined ? id : `${group.label} ${group.module.path}, ${group.half}, ${group.ops.length} ops`;
      root.setAttribute("aria-label", text);
      title.textContent = text;
      if (tensor !== undefined) rows.push(tensor);
    }
    const body = document.createElement("tbody");
    for (const tensor of rows) {
      const row = picture.rows.get(tensor.id);
      const line = body.insertRow();
      const cells = [tensor.name, tensor.role, shape(tensor.shape)];
      for (const statistic of /** @type {const} */ (["mean", "std"])) {
        cells.push(row === undefined ? "–" : figure(picture, tensor, statistic).text);
      }
      for (const text of cells) line.insertCell().textContent = text;
    }
    const caption = html("caption", {}, "Every tensor of the graph, in order of execution");
    const titles = ["tensor", "role", "shape", "mean", "std"].map((title) => html("th", { scope: "col" }, title));
    const head = html("thead", {}, html("tr", {}, ...titles));
    this.#table.replaceChildren(caption, head, body);
  }

  // Selection, focus, keys

  /** Shows what is selected, what it is linked to, and the edges between. */
  #mark() {
    const twins = new Set();
    for (const { id, twin } of [...(this.#scene?.groups ?? []), ...(this.#scene?.tensors ?? [])]) {
      if (id === this.#selection && twin !== null) twins.add(twin);
      if (twin === this.#selection && twin !== "") twins.add(id);
    }
    for (const [id, { root }] of this.#parts) {
      root.classList.toggle("selected", id === this.#selection);
      root.classList.toggle("twin", twins.has(id));
      root.setAttribute("aria-pressed", String(id === this.#selection));
    }
    this.#light(this.#selection);
  }

  /** @param {string} id */
  #light(id) {
    for (const path of this.#edges.children) {
      if (!(path instanceof SVGElement)) continue;
      path.classList.toggle("lit", id !== "" && (path.dataset["source"] === id || path.dataset["target"] === id));
    }
  }

  /** @param {string} id */
  #hover(id) {
    this.#light(id === "" ? this.#selection : id);
  }

  /** @param {string} id @param {boolean} take whether the browser's focus goes along */
  #moveFocus(id, take) {
    const parts = this.#parts.get(id);
    if (parts === undefined) return;
    this.#parts.get(this.#focused)?.root.setAttribute("tabindex", "-1");
    this.#focused = id;
    parts.root.setAttribute("tabindex", "0");
    if (!take) return;
    this.#reveal(id);
    parts.root.focus({ preventScroll: true });
  }

  /** Pans as far as needed for a box to be seen. @param {string} id */
  #reveal(id) {
    const layout = this.#layout;
    const box = layout?.boxes.find((candidate) => candidate.id === id);
    if (layout == null || box === undefined) return;
    const { length } = this.#room;
    const [from, size, long] = this.#isVertical ? [box.y, box.h, layout.height] : [box.x, box.w, layout.width];
    const start = (this.#isVertical ? this.#start.y : this.#start.x) + from * this.#magnify;
    if (start >= 0 && start + size * this.#magnify <= length) return;
    this.#pan({ at: (from + size / 2) / long });
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const boxes = this.#layout?.boxes ?? [];
    const from = boxes.find(({ id }) => id === this.#focused);
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    switch (event.key) {
      case "ArrowLeft":
      case "ArrowRight":
      case "ArrowUp":
      case "ArrowDown": {
        const next = from && neighbour(boxes, from, event.key);
        if (next != null) this.#moveFocus(next.id, true);
        break;
      }
      case "Home":
        this.#moveFocus(this.#scene?.tensors.find(({ satellite }) => satellite === null)?.id ?? "", true);
        break;
      case "End":
        this.#moveFocus([...this.#tensors].find(([, tensor]) => tensor.role === "loss")?.[0] ?? "", true);
        break;
      case "Enter":
      case " ":
        emit(this, "box-select", { id: this.#focused });
        break;
      case "Escape":
        emit(this, "box-select", { id: "" });
        break;
      case "+":
      case "=":
        this.#zoomBy(ZOOM_STEP);
        break;
      case "-":
        this.#zoomBy(1 / ZOOM_STEP);
        break;
      case "0":
        this.#fit();
        break;
      default:
        return;
    }
    event.preventDefault();
  }

  // Zoom and pan

  #fit() {
    this.#pinned = null;
    this.#camera = { zoom: 1, at: 0, across: 0.5 };
    this.#askForLayout();
    this.#tellCamera();
  }

  /** @param {number} factor @param {number} [pointer] px along the depth; the middle without one */
  #zoomBy(factor, pointer) {
    const layout = this.#layout;
    if (layout === null) return;
    const { length } = this.#room;
    this.#pinned = this.#pin(layout, pointer ?? length / 2);
    this.#camera.zoom = splitZoom(this.#camera.zoom * factor, layout.natural, length).zoom;
    this.#askForLayout();
  }

  /** @param {Box} box @returns {[number, number]} where it starts along the depth, and its depth */
  #alongDepth(box) {
    return this.#isVertical ? [box.y, box.h] : [box.x, box.w];
  }

  /** @param {Layout} layout @param {number} pointer */
  #pin(layout, pointer) {
    const start = this.#isVertical ? this.#start.y : this.#start.x;
    const depth = (pointer - start) / this.#magnify;
    let best = null;
    let least = Infinity;
    for (const box of layout.boxes) {
      const [from, size] = this.#alongDepth(box);
      const away = Math.abs(depth - from - size / 2);
      if (away < least) [best, least] = [{ id: box.id, share: (depth - from) / size, pointer }, away];
    }
    return best;
  }

  /** Turns the camera so that what is pinned is under the pointer. @param {Layout} layout @param {number} content px */
  #followPin(layout, content) {
    const pinned = this.#pinned;
    const box = layout.boxes.find(({ id }) => id === pinned?.id);
    if (pinned === null || box === undefined) return;
    const [from, size] = this.#alongDepth(box);
    const start = pinned.pointer - (from + pinned.share * size) * this.#magnify;
    this.#camera.at = clampShare((this.#room.length / 2 - start) / content);
  }

  /** @param {{at?: number, across?: number}} to */
  #pan(to) {
    this.#pinned = null;
    this.#camera = { ...this.#camera, at: clampShare(to.at ?? this.#camera.at), across: clampShare(to.across ?? this.#camera.across) };
    this.#place();
    this.#tellCamera();
  }

  #tellCamera() {
    emit(this, "camera-change", { zoom: this.#camera.zoom, at: this.#camera.at });
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    event.preventDefault();
    if (sideways && !event.ctrlKey) {
      const content = (this.#layout?.width ?? 1) * this.#magnify;
      this.#pan({ at: this.#camera.at + (event.deltaX || event.deltaY) / content });
      return;
    }
    const area = this.#stage.getBoundingClientRect();
    const pointer = this.#isVertical ? event.clientY - area.top : event.clientX - area.left;
    this.#zoomBy(Math.exp(-event.deltaY * (event.deltaMode === 1 ? 0.05 : 0.002)), pointer);
  }

  /** @param {PointerEvent} event */
  #drag(event) {
    const layout = this.#layout;
    if (layout === null || event.button !== 0 || !this.#stage.classList.contains("pannable")) return;
    const begin = { x: event.clientX, y: event.clientY, start: { ...this.#start } };
    const { length, breadth } = this.#room;
    /** @param {PointerEvent} move */
    const move = (move) => {
      const [dx, dy] = [move.clientX - begin.x, move.clientY - begin.y];
      // A click may tremble; only what goes further is a drag.
      if (Math.hypot(dx, dy) > 3) this.#stage.setPointerCapture(event.pointerId);
      if (!this.#stage.hasPointerCapture(event.pointerId)) return;
      const [x, y] = [begin.start.x + dx, begin.start.y + dy];
      const [along, across] = this.#isVertical ? [y, x] : [x, y];
      const [long, broad] = this.#isVertical ? [layout.height, layout.width] : [layout.width, layout.height];
      this.#pan({ at: (length / 2 - along) / (long * this.#magnify), across: (breadth / 2 - across) / (broad * this.#magnify) });
    };
    const stop = () => {
      this.#stage.removeEventListener("pointermove", move);
      this.#stage.removeEventListener("pointerup", stop);
      this.#stage.removeEventListener("pointercancel", stop);
    };
    this.#stage.addEventListener("pointermove", move);
    this.#stage.addEventListener("pointerup", stop);
    this.#stage.addEventListener("pointercancel", stop);
  }
}

/** @param {readonly number[]} points @returns {string} the d of a path */
function pathOf(points) {
  const text = points.map((value) => value.toFixed(1));
  let path = `M${text[0]} ${text[1]}`;
  for (let index = 2; index + 5 < text.length; index += 6) path += `C${text.slice(index, index + 6).join(" ")}`;
  return path;
}

customElements.define("graph-view", GraphView);
