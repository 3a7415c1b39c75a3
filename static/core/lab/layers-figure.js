/** The same picture for Plotly, once it rests: hover, zoom and export. Only an exported image has axes of its own. */

import { count, percent, significant, wrapped } from "../format.js";
import { countTicks, LANE, LANE_CELL, laneOpacity, laneText, layerLabels, mostOf, NEEDLE, needleFill, needleOf,
  peakShare, ridgeFill, ridgeOf, wholeSection } from "./layers-plan.js";
import { MIN_COUNT, rampStops } from "../colours.js";
import { BINS } from "../value-axis.js";

/** @typedef {{data: object[], layout: Record<string, any>}} Figure */

const PLAIN_AXIS = { showgrid: false, zeroline: false, showline: false, showticklabels: false, ticks: "" };
/** The maximum width of a letter and the height of a line in a subtitle, px. */
const [LETTER, LINE] = [6, 15];
const EXPORT_MARGIN = { left: 30, right: 70, top: 62, bottom: 34 };

/** @param {LayerHistograms} histograms @param {LayersPlan} plan @param {LayersPaint} paint
 * @param {string} family of the font @returns {Figure} */
export function layersFigure(histograms, plan, paint, family) {
  const { main, lanes, width, height } = plan;
  const [upper, lower] = [lanes.filter(({ y }) => y < main.y), lanes.filter(({ y }) => y > main.y)];
  const top = upper[0]?.y ?? main.y;
  const bottom = (lower.at(-1)?.y ?? 0) + LANE;
  /** @param {number} from @param {number} to px @returns {[number, number]} as Plotly counts, from below */
  const domain = (from, to) => [1 - (to - top) / (bottom - top), 1 - (from - top) / (bottom - top)];
  const laneAxis = (/** @type {Lane[]} */ group) => ({
    ...PLAIN_AXIS,
    anchor: "x",
    domain: domain(group[0]?.y ?? 0, (group.at(-1)?.y ?? 0) + LANE),
    range: [group.length, 0],
    fixedrange: true,
  });
  const layers = plan.form === "heatmap" ? [cells(histograms, plan, paint)] : ridges(histograms, plan, paint);
  return {
    data: [
      ...layers,
      ...upper.map((lane, order) => laneCells(histograms, plan, paint, lane, "y2", order)),
      ...lower.map((lane, order) => laneCells(histograms, plan, paint, lane, "y3", order)),
    ],
    layout: {
      width,
      height,
      margin: { l: main.x, r: width - main.x - main.w, t: top, b: height - bottom, pad: 0 },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { family, size: 10, color: paint.muted },
      hoverlabel: { bgcolor: paint.paper, bordercolor: paint.line, font: { color: paint.ink, family, size: 12 },
        align: "left" },
      hovermode: "closest",
      showlegend: false,
      xaxis: { ...PLAIN_AXIS, anchor: "y", range: wholeSection(plan).x },
      yaxis: { ...PLAIN_AXIS, anchor: "x", domain: domain(main.y, main.y + main.h), range: [0, 1] },
      yaxis2: laneAxis(upper),
      yaxis3: laneAxis(lower),
    },
  };
}

/** An image to keep: with axes, title and scale, on paper.
 * @param {LayerHistograms} histograms @param {LayersPlan} plan @param {LayersPaint} paint
 * @param {string} family of the font @param {string} title @param {string} subtitle @param {string} caption @returns {Figure} */
export function exportedFigure(histograms, plan, paint, family, title, subtitle, caption) {
  const { data, layout } = layersFigure(histograms, plan, paint, family);
  const { axis } = histograms;
  const section = wholeSection(plan);
  const labels = layerLabels(histograms, plan, section);
  const ticks = axis.ticks(0, 1, plan.main.h, 26);
  const labelled = (/** @type {number[]} */ tickvals, /** @type {string[]} */ texts) => ({ showticklabels: true,
    tickvals, ticktext: texts.map(plain) });
  const laneLabels = (/** @type {Lane[]} */ group) =>
    labelled(group.map((_, order) => order + 0.5), group.map(({ kind }) => laneText(kind, axis)));
  const most = mostOf(histograms);
  const scale = countTicks(most);
  const colorbar = {
    title: { text: "values in a bin", side: "right" },
    thickness: 10,
    outlinewidth: 0,
    tickvals: scale.map(({ place }) => place * Math.log1p(most)),
    ticktext: scale.map(({ text }) => text),
  };
  const below = [subtitle, ...wrapped(caption, (line) => line.length * LETTER <= plan.width)];
  const { left, right, bottom } = EXPORT_MARGIN;
  const top = EXPORT_MARGIN.top + (below.length - 1) * LINE;
  const isHeatmap = plan.form === "heatmap";
  const margin = layout["margin"];
  const question = { x: histograms.hidden, y: 0.5, text: "?", showarrow: false, font: { size: 14, color: paint.ink } };
  return {
    data: data.map((trace, order) => order === 0 && isHeatmap ? { ...trace, showscale: true, colorbar } : trace),
    layout: {
      ...layout,
      width: plan.width + left + right,
      height: plan.height + top + bottom,
      margin: { l: margin.l + left, r: margin.r + right, t: margin.t + top, b: margin.b + bottom },
      title: {
        text: plain(title),
        subtitle: { text: below.map(plain).join("<br>"), font: { size: 11, color: paint.muted } },
        x: 0.02,
        y: 1 - 18 / (plan.height + top + bottom),
        yanchor: "top",
        font: { size: 14, color: paint.ink },
      },
      annotations: histograms.hidden < 0 ? [] : [question],
      paper_bgcolor: paint.paper,
      xaxis: {
        ...layout["xaxis"],
        anchor: "y3",
        ...labelled(labels.map(({ column }) => column), labels.map(({ text }) => text)),
        tickangle: 0,
        title: { text: "layer", standoff: 6 },
      },
      yaxis: {
        ...layout["yaxis"],
        ...labelled(ticks.map(({ place }) => place), ticks.map(({ text }) => text)),
        showgrid: true,
        gridcolor: paint.line,
      },
      yaxis2: { ...layout["yaxis2"], ...laneLabels(plan.lanes.filter(({ y }) => y < plan.main.y)) },
      yaxis3: { ...layout["yaxis3"], ...laneLabels(plan.lanes.filter(({ y }) => y > plan.main.y)) },
    },
  };
}

/** Plotly reads a few tags in its texts. @param {string} text @returns {string} */
function plain(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

/** @param {LayerHistograms} histograms @param {number} order @param {number} bin @returns {string} */
function binText(histograms, order, bin) {
  const { axis, counts } = histograms;
  const range = `${significant(axis.edges[bin])} to ${significant(axis.edges[bin + 1])}`;
  return shareText(histograms, order, range, counts[order * BINS + bin]);
}

/** @param {LayerHistograms} histograms @param {number} order @param {string} what @param {number} values */
function shareText(histograms, order, what, values) {
  const size = histograms.sizes[order] || 1;
  const { index, name } = histograms.columns[order];
  return `<b>${plain(`${index === 0 ? "input" : `layer ${index}`}: ${name}`)}</b><br>${what}<br>${about(values)} of ${
    count(size)
  } values, ${percent(values / size)}`;
}

/** @param {number} values @returns {string} counts that were spread over bins are no whole numbers */
function about(values) {
  const rounded = Math.round(values);
  if (values > 0 && rounded === 0) return "less than one";
  return Math.abs(values - rounded) < 1e-6 ? count(rounded) : `about ${count(rounded)}`;
}

/** @param {LayerHistograms} histograms @param {LayersPlan} plan @param {LayersPaint} paint @returns {object} */
function cells(histograms, plan, paint) {
  const { columns, counts } = histograms;
  const z = [];
  const texts = [];
  for (let bin = 0; bin < BINS; bin += 1) {
    const values = columns.map((_, order) => counts[order * BINS + bin]);
    z.push(values.map((value) => value < MIN_COUNT ? null : Math.log1p(value)));
    texts.push(values.map((value, order) => value < MIN_COUNT ? "" : binText(histograms, order, bin)));
  }
  return {
    ...heatmap(plan),
    x: columns.map((_, order) => order),
    y: Array.from({ length: BINS }, (_, bin) => (bin + 0.5) / BINS),
    z,
    hovertext: texts,
    ...shades(histograms, paint),
  };
}

/** @param {LayersPlan} plan @returns {object} what all heatmaps have in common */
function heatmap({ gap }) {
  return { type: "heatmap", hovertemplate: "%{hovertext}<extra></extra>", hoverongaps: false, showscale: false,
    zsmooth: false, xgap: gap };
}

/** @param {LayerHistograms} histograms @param {LayersPaint} paint @returns {object} */
function shades(histograms, { paper, hue, ink }) {
  return {
    colorscale: rampStops(paper, hue, ink).map(([at, colour]) => [at, `rgb(${colour.join()})`]),
    zmin: 0,
    zmax: Math.log1p(mostOf(histograms)),
  };
}

/** @param {LayerHistograms} histograms @param {LayersPlan} plan @param {LayersPaint} paint @param {Lane} lane
 * @param {string} yaxis @param {number} order of the lane on its axis @returns {object} */
function laneCells(histograms, plan, paint, { kind }, yaxis, order) {
  const { columns, sizes } = histograms;
  const counts = columns.map((_, column) => histograms[kind][column] ?? 0);
  const isOutside = kind === "above" || kind === "below";
  const opacities = [paint.warning + hex(laneOpacity(0)), paint.warning + hex(laneOpacity(1))];
  return {
    ...heatmap(plan),
    yaxis,
    x: columns.map((_, column) => column),
    y: [order + 0.5],
    ygap: LANE - LANE_CELL,
    z: [
      counts.map((value, column) =>
        value < MIN_COUNT ? null : isOutside ? Math.log1p(value) : value / (sizes[column] || 1)
      ),
    ],
    hovertext: [
      counts.map((value, column) => shareText(histograms, column, plain(laneText(kind, histograms.axis)), value)),
    ],
    ...(isOutside ? shades(histograms, paint)
      : { colorscale: [[0, opacities[0]], [1, opacities[1]]], zmin: 0, zmax: 1 }),
  };
}

/** @param {number} opacity @returns {string} two digits for a #rrggbb */
function hex(opacity) {
  return Math.round(255 * opacity).toString(16).padStart(2, "0");
}

/** @param {LayerHistograms} histograms @param {LayersPlan} plan @param {LayersPaint} paint */
function ridges(histograms, plan, paint) {
  const peak = peakShare(histograms);
  const gap = plan.gap / plan.pitch;
  const reach = plan.reach / plan.pitch - gap;
  const common = { type: "scatter", mode: "lines", hoveron: "points", hovertemplate: "%{hovertext}<extra></extra>" };
  /** @param {number} order @returns {number} where its ridge stands, in columns */
  const base = (order) => order - 0.5 + gap / 2;
  const outlines = histograms.columns.flatMap((_, order) => {
    // A gap in the outline is a point without a number.
    const points = ridgeOf(histograms, order, peak).flatMap(({ places, heights }) => [
      ...places.map((place, point) => ({ place, x: base(order) + heights[point] * reach })),
      { place: null, x: null },
    ]);
    if (points.length === 0) return [];
    return [
      {
        ...common,
        x: points.map(({ x }) => x),
        y: points.map(({ place }) => place),
        fill: "toself",
        fillcolor: ridgeFill(paint),
        line: { color: paint.hue, width: 1 },
        hovertext: points.map(({ place }) =>
          binText(histograms, order, Math.min(BINS - 1, Math.floor((place ?? 0) * BINS)))
        ),
      },
    ];
  });
  const needles = histograms.columns.flatMap((_, order) => {
    const needle = needleOf(histograms, order);
    if (needle === null) return [];
    const text = shareText(histograms, order, "exactly equal", histograms.spikes[order]);
    const end = base(order) + needle.share * (1 - gap);
    return [base(order), end, null].map((x) => ({ x, y: x === null ? null : needle.place, text }));
  });
  outlines.reverse();
  if (needles.length === 0) return outlines;
  const lines = {
    ...common,
    x: needles.map(({ x }) => x),
    y: needles.map(({ y }) => y),
    line: { color: needleFill(paint), width: NEEDLE },
    hovertext: needles.map(({ text }) => text),
  };
  return [...outlines, lines];
}
