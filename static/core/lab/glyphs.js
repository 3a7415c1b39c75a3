/** Pens for the marks of a chart: one writes the data of an SVG path, one draws on a canvas, which is faster. */

/** To a tenth of a pixel; `toFixed` takes several times as long, a thousand times a frame. @param {number} length px */
export function tenth(length) {
  return Math.round(length * 10) / 10;
}

/** @typedef {PathText | CanvasPath} Pen */

export class PathText {
  d = "";

  /** @param {number} x @param {number} y */
  moveTo(x, y) {
    this.d += `M${tenth(x)} ${tenth(y)}`;
  }

  /** @param {number} x @param {number} y */
  lineTo(x, y) {
    this.d += `L${tenth(x)} ${tenth(y)}`;
  }

  closePath() {
    this.d += "z";
  }

  /** @param {number} x @param {number} y @param {number} r */
  disc(x, y, r) {
    this.d += `M${tenth(x - r)} ${tenth(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
  }
}

export class CanvasPath extends Path2D {
  /** @param {number} x @param {number} y @param {number} r */
  disc(x, y, r) {
    this.moveTo(x + r, y);
    this.arc(x, y, r, 0, 2 * Math.PI);
  }
}

/** Pointing down: a negative value. @param {Pen} pen @param {number} x @param {number} y @param {number} r */
export function triangle(pen, x, y, r) {
  polygon(pen, [[x - r, y - 0.8 * r], [x + r, y - 0.8 * r], [x, y + r]]);
}

/** @param {Pen} pen @param {number} x @param {number} y @param {number} r */
export function square(pen, x, y, r) {
  polygon(pen, [[x - r, y - r], [x + r, y - r], [x + r, y + r], [x - r, y + r]]);
}

/** @param {Pen} pen @param {number} x @param {number} y @param {number} r */
export function cross(pen, x, y, r) {
  line(pen, [[x - r, y - r], [x + r, y + r]]);
  line(pen, [[x + r, y - r], [x - r, y + r]]);
}

/** @param {Pen} pen @param {readonly (readonly [number, number])[]} points */
export function line(pen, points) {
  points.forEach(([x, y], order) => order === 0 ? pen.moveTo(x, y) : pen.lineTo(x, y));
}

/** @param {Pen} pen @param {readonly (readonly [number, number])[]} points */
export function polygon(pen, points) {
  line(pen, points);
  pen.closePath();
}
