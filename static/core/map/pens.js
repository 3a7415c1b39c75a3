/** Two pens of one drawing: on a canvas, and into the text of an SVG document. */

/** @typedef {readonly [x: number, y: number]} Point */
/** @typedef {{colour: string, width: number, dash?: readonly number[]}} Stroke */
/** @typedef {{x: number, y: number, w: number, h: number}} Box */
/** align: of the text at its place
 * @typedef {{colour: string, align?: "left" | "center" | "right", isBold?: boolean}} Lettering */
/** @typedef {object} Pen
 * @property {(lines: readonly (readonly Point[])[], stroke: Stroke) => void} lines
 * @property {(text: string, x: number, y: number, look: Lettering) => void} text y: its middle
 * @property {(box: Box, fill: string | null, stroke?: Stroke) => void} box
 * @property {(image: HTMLCanvasElement, box: Box) => void} image with sharp pixels
 * @property {(mask: HTMLCanvasElement | null, box: Box, colour: string) => void} hatch where the mask is opaque
 * @property {(box: Box, draw: () => void) => void} within nothing is drawn outside
 * @property {(text: string) => number} widthOf */

const FONT_PX = 11;
const HATCH = 5;

/** @param {CanvasRenderingContext2D} context of a canvas whose units are CSS px @param {string} family of the font
 * @returns {Pen} */
export function canvasPen(context, family) {
  const font = (isBold = false) => `${isBold ? "600 " : ""}${FONT_PX}px ${family}`;
  const path = (/** @type {readonly (readonly Point[])[]} */ lines) => {
    context.beginPath();
    for (const line of lines)
      line.forEach((point, at) => at === 0 ? context.moveTo(...point) : context.lineTo(...point));
  };
  const stroked = (/** @type {Stroke} */ { colour, width, dash = [] }) => {
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.setLineDash(dash);
    context.lineJoin = "round";
  };
  const layer = document.createElement("canvas");
  return {
    lines(lines, stroke) {
      stroked(stroke);
      path(lines);
      context.stroke();
    },
    text(text, x, y, { colour, align = "left", isBold }) {
      context.font = font(isBold);
      context.textAlign = align;
      context.textBaseline = "middle";
      context.fillStyle = colour;
      context.fillText(text, x, y);
    },
    box({ x, y, w, h }, fill, stroke) {
      if (fill !== null) {
        context.fillStyle = fill;
        context.fillRect(x, y, w, h);
      }
      if (stroke === undefined) return;
      stroked(stroke);
      context.strokeRect(x, y, w, h);
    },
    image(image, { x, y, w, h }) {
      context.imageSmoothingEnabled = false;
      context.drawImage(image, x, y, w, h);
    },
    hatch(mask, { x, y, w, h }, colour) {
      const { canvas: { width, height } } = context;
      const on = mask === null ? context : layer.getContext("2d");
      const pattern = on?.createPattern(hatching(colour), "repeat");
      if (on === null || !pattern) return;
      if (mask !== null) {
        // A new size clears it.
        [layer.width, layer.height] = [width, height];
        on.setTransform(context.getTransform());
        on.imageSmoothingEnabled = false;
        on.drawImage(mask, x, y, w, h);
        on.globalCompositeOperation = "source-in";
      }
      on.fillStyle = pattern;
      on.fillRect(
        ...(mask === null ? /** @type {const} */ ([x, y, w, h]) : /** @type {const} */ ([0, 0, width, height])),
      );
      if (mask === null) return;
      context.save();
      context.resetTransform();
      context.drawImage(layer, 0, 0);
      context.restore();
    },
    within({ x, y, w, h }, draw) {
      context.save();
      context.beginPath();
      context.rect(x, y, w, h);
      context.clip();
      draw();
      context.restore();
    },
    widthOf(text) {
      context.font = font();
      return context.measureText(text).width;
    },
  };
}

/** @type {Map<string, HTMLCanvasElement>} */
const hatchings = new Map();

/** @param {string} colour @returns {HTMLCanvasElement} one tile */
function hatching(colour) {
  const known = hatchings.get(colour);
  if (known !== undefined) return known;
  const tile = document.createElement("canvas");
  tile.width = tile.height = HATCH;
  const on = tile.getContext("2d");
  if (on !== null) {
    on.strokeStyle = colour;
    on.lineWidth = 1.5;
    for (const shift of [-HATCH, 0, HATCH]) {
      on.moveTo(shift - 1, HATCH + 1);
      on.lineTo(shift + HATCH + 1, -1);
    }
    on.stroke();
  }
  hatchings.set(colour, tile);
  return tile;
}

/** @param {string} text @returns {string} */
function escaped(text) {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}

/** @param {string} name @param {Record<string, string | number | undefined>} attributes @param {string} [content]
 * @returns {string} */
function tag(name, attributes, content = "") {
  const parts = Object.entries(attributes).filter(([, value]) => value !== undefined).map(([key, value]) =>
    ` ${key}="${typeof value === "number" ? Number(value.toFixed(2)) : escaped(value ?? "")}"`
  );
  return `<${name}${parts.join("")}${content === "" ? "/>" : `>${content}</${name}>`}`;
}

/** @param {(text: string) => number} widthOf @param {string} family
 * @returns {{pen: Pen, document: (width: number, height: number, title: string, paper: string) => string}} */
export function svgPen(widthOf, family) {
  let body = "";
  let masks = 0;
  const stroked = (/** @type {Stroke | undefined} */ stroke) => ({ fill: "none", stroke: stroke?.colour ?? "none",
    "stroke-width": stroke?.width, "stroke-dasharray": stroke?.dash?.join(" ") || undefined });
  const picture = (/** @type {HTMLCanvasElement} */ image, /** @type {Box} */ { x, y, w, h }) =>
    tag("image", { x, y, width: w, height: h, href: image.toDataURL(), preserveAspectRatio: "none",
      style: "image-rendering:pixelated" });
  /** @type {Pen} */
  const pen = {
    lines(lines, stroke) {
      const d = lines.map((line) =>
        line.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`).join("")
      );
      body += tag("path", { d: d.join(""), ...stroked(stroke), "stroke-linejoin": "round" });
    },
    text(text, x, y, { colour, align = "left", isBold }) {
      body += tag("text", { x, y, dy: "0.35em", fill: colour, "font-weight": isBold ? 600 : undefined,
        "text-anchor": { left: "start", center: "middle", right: "end" }[align] }, escaped(text));
    },
    box({ x, y, w, h }, fill, stroke) {
      body += tag("rect", { x, y, width: w, height: h, ...stroked(stroke), fill: fill ?? "none" });
    },
    image(image, box) {
      body += picture(image, box);
    },
    hatch(mask, { x, y, w, h }, colour) {
      masks += 1;
      const [shape, hatch] = [`mask${masks}`, `hatch${masks}`];
      body += tag("pattern", { id: hatch, width: HATCH, height: HATCH, patternUnits: "userSpaceOnUse" },
        tag("path", { d: `M-1 ${HATCH + 1}L${HATCH + 1} -1`, stroke: colour, "stroke-width": 1.5 }));
      if (mask !== null) body += tag("mask", { id: shape }, picture(mask, { x, y, w, h }));
      body += tag("rect", { x, y, width: w, height: h, fill: `url(#${hatch})`,
        mask: mask ? `url(#${shape})` : undefined });
    },
    within({ x, y, w, h }, draw) {
      const before = body;
      body = "";
      draw();
      body = before + tag("svg", { x, y, width: w, height: h, viewBox: [x, y, w, h].join(" ") }, body);
    },
    widthOf,
  };
  return { pen,
    document: (width, height, title, paper) =>
      tag("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
        "font-family": family, "font-size": FONT_PX },
        tag("title", {}, escaped(title)) + tag("rect", { width, height, fill: paper }) + body) };
}
