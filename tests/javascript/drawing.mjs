/** Lays a topology out, says what is wrong with a drawing, and gives its boxes by id. */

import { buildGraph, openGroups } from "../../static/core/graph/graph.js";
import { layoutGraph } from "../../static/core/layout/layout.js";

const KINDS = ["op", "tensor", "group", "frame"];
const LOSS = 8;

/** What is wrong with a drawing, in words. */
export function check(graph, drawing, isVertical) {
  const { kind, half, ref, rect, frame, twin, source, target, routeKind, routeHalf, routeTensor, points, pointStart } = drawing;
  const wrong = [];
  const name = (box) => idOfBox(graph, drawing, box);
  const places = Array.from({ length: drawing.boxes }, (_, box) => {
    const [x, y, w, h] = rect.subarray(4 * box, 4 * box + 4);
    return { x, y, w, h };
  });
  const holds = (outer, inner) =>
    inner.x >= outer.x - 0.01 &&
    inner.y >= outer.y - 0.01 &&
    inner.x + inner.w <= outer.x + outer.w + 0.01 &&
    inner.y + inner.h <= outer.y + outer.h + 0.01;
  const isAround = (outer, inner) => {
    for (let at = frame[inner]; at >= 0; at = frame[at]) if (at === outer) return true;
    return false;
  };
  const [along, depth, across, thick] = isVertical ? ["y", "h", "x", "w"] : ["x", "w", "y", "h"];
  const middle = (box) => places[box][along] + places[box][depth] / 2;

  const whole = { x: 0, y: 0, w: drawing.width, h: drawing.height };
  places.forEach((place, box) => {
    if (!Object.values(place).every(Number.isFinite) || place.w <= 0 || place.h <= 0) wrong.push(`${name(box)} has no size`);
    if (!holds(whole, place)) wrong.push(`${name(box)} lies outside the drawing`);
    if (frame[box] >= box) wrong.push(`${name(box)} comes before its frame`);
    if (frame[box] >= 0 && !holds(places[frame[box]], place)) wrong.push(`${name(box)} leaves its frame`);
    const isOnAxis = kind[box] === 1 && graph.arrays.tensorRole[ref[box]] === LOSS;
    if (half[box] === 0 && !isOnAxis && place[across] + place[thick] > drawing.axis) wrong.push(`${name(box)} hangs over the axis`);
    if (half[box] === 1 && place[across] < drawing.axis) wrong.push(`${name(box)} sticks out over the axis`);
    const other = twin[box];
    if (half[box] === 0 || other < 0) return;
    if (Math.abs(middle(box) - middle(other)) > 0.02) wrong.push(`${name(box)} is not under ${name(other)}`);
    const isGradient = kind[box] === 1 && twin[other] === box;
    if (isGradient && Math.abs(place[depth] - places[other][depth]) > 0.02) wrong.push(`${name(box)} is not as deep as ${name(other)}`);
  });

  for (let a = 0; a < places.length; a += 1) {
    for (let b = a + 1; b < places.length; b += 1) {
      const [p, q] = [places[a], places[b]];
      const isBeside = p.x + p.w <= q.x + 0.01 || q.x + q.w <= p.x + 0.01;
      const isApart = isBeside || p.y + p.h <= q.y + 0.01 || q.y + q.h <= p.y + 0.01;
      if (!isApart && !isAround(a, b) && !isAround(b, a)) wrong.push(`${name(a)} overlaps ${name(b)}`);
    }
  }

  for (let route = 0; route < drawing.routes; route += 1) {
    const line = points.subarray(2 * pointStart[route], 2 * pointStart[route + 1]);
    const title = `${name(source[route])} → ${name(target[route])} (${graph.tensorId[routeTensor[route]]})`;
    if (line.length < 8 || line.length % 6 !== 2 || !line.every(Number.isFinite)) {
      wrong.push(`${title} is no curve`);
      continue;
    }
    if (!isOnBorder(places[source[route]], line[0], line[1])) wrong.push(`${title} does not start on its box`);
    if (!isOnBorder(places[target[route]], line.at(-2), line.at(-1))) wrong.push(`${title} does not end on its box`);
    if (routeKind[route] !== 0 || routeHalf[route] !== 0) continue;
    let last = -Infinity;
    let through = -1;
    for (const [x, y] of alongLine(line)) {
      const ahead = isVertical ? y : x;
      if (ahead < last - 0.01) {
        wrong.push(`${title} runs back`);
        break;
      }
      last = ahead;
      if (through < 0) through = places.findIndex((place, box) => kind[box] !== 3 && box !== source[route] && box !== target[route] && isInside(place, x, y));
    }
    if (through >= 0) wrong.push(`${title} runs through ${name(through)}`);
  }
  return wrong.slice(0, 20);
}

function isOnBorder({ x, y, w, h }, px, py) {
  const [dx, dy] = [Math.min(Math.abs(px - x), Math.abs(px - x - w)), Math.min(Math.abs(py - y), Math.abs(py - y - h))];
  return px > x - 0.6 && px < x + w + 0.6 && py > y - 0.6 && py < y + h + 0.6 && Math.min(dx, dy) < 0.6;
}

function isInside({ x, y, w, h }, px, py) {
  return px > x + 1 && px < x + w - 1 && py > y + 1 && py < y + h - 1;
}

function* alongLine(line) {
  for (let at = 0; at + 7 < line.length; at += 6) {
    for (let step = 0; step <= 16; step += 1) {
      const [t, s] = [step / 16, 1 - step / 16];
      const weights = [s * s * s, 3 * s * s * t, 3 * s * t * t, t * t * t];
      yield [0, 1].map((lane) => weights.reduce((sum, weight, k) => sum + weight * line[at + 2 * k + lane], 0));
    }
  }
}

/** A topology, or a graph made of one, at a state of expansion. */
export function lay(topology, expansion, options = {}, cache = undefined) {
  const graph = "arrays" in topology ? topology : buildGraph(topology);
  const opened = openGroups(graph, { level: "layer", toggled: [], fold: "off", ...expansion });
  const whole = { orientation: "horizontal", length: 860, breadth: 480, ...options };
  return { graph, drawing: layoutGraph(graph.arrays, opened, whole, cache) };
}

function idOfBox(graph, { kind, half, ref }, box) {
  const index = ref[box];
  if (kind[box] === 1) return graph.tensorId[index];
  if (kind[box] === 0) return graph.topology.ops[index].id;
  return half[box] === 0 ? graph.groupId[index] : graph.groupId[index].replace("/forward", "/backward");
}

/** Boxes by id, in the drawing's order. */
export function boxesOf({ graph, drawing }) {
  const { kind, half, rect, frame } = drawing;
  const boxes = Array.from({ length: drawing.boxes }, (_, box) => {
    const [x, y, w, h] = rect.subarray(4 * box, 4 * box + 4);
    const around = frame[box] < 0 ? null : idOfBox(graph, drawing, frame[box]);
    return [idOfBox(graph, drawing, box), { kind: KINDS[kind[box]], half: half[box], x, y, w, h, frame: around }];
  });
  return Object.fromEntries(boxes);
}
