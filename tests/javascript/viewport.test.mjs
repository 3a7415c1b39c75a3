/** The viewport of the graph: natural size, fit, zoom and limits. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Viewport } from "../../static/core/view/viewport.js";
import { near } from "./tools.mjs";

test("a viewport keeps what is held and leaves no gaps", () => {
  const after = (extent, ...moves) => {
    const view = new Viewport();
    view.room = { width: 800, height: 500 };
    view.show(extent, null);
    for (const [name, ...values] of moves) view[name](...values);
    return view;
  };
  const small = { width: 400, height: 300, natural: 400, isElastic: false };
  const large = { width: 8000, height: 1000, natural: 8000, isElastic: false };
  // A small drawing is shown in its natural size, a large one whole; both in the middle.
  const { x, y, scale, camera, overflows } = after(small);
  assert.deepEqual([x, y, scale, camera, overflows], [200, 100, 1, { zoom: 1, at: 0, across: 0.5 }, false]);
  const begin = after(large);
  near([begin.x, begin.y, begin.scale], [0, 0, 0.5]);
  assert.ok(begin.overflows);
  // The next drawing is not magnified for it; a view that has moved keeps its zoom.
  const next = after(large, ["show", small, null]);
  near([next.x, next.y, next.scale], [200, 100, 1]);
  near([after(large, ["moveTo", -9, 0]).camera.zoom], [5]);
  // Groups that are open leave room for the names above and the header beneath.
  const headed = new Viewport();
  Object.assign(headed, { room: { width: 800, height: 500 }, isHeaded: true });
  headed.show(large, null);
  near([headed.y, headed.y + 1000 * headed.scale], [38, 500 - 18]);
  const whole = ["look", { zoom: 1, at: 0.5, across: 0.5 }];
  const fit = after(large, whole);
  near([fit.x, fit.y, fit.scale], [0, (500 - 100) / 2, 0.1]);
  assert.ok(!fit.overflows);
  // Magnified around a point: what was at 600, 250 still is. No more than three times the natural size.
  const close = after(large, whole, ["magnifyAt", 1.5, 600, 250]);
  near([close.scale, close.camera.zoom], [1.5, 15]);
  near([(600 - close.x) / 1.5, (250 - close.y) / 1.5], [600 / 0.1, (250 - 200) / 0.1]);
  near([50, 0.001].map((to) => after(large, ["magnifyAt", to, 0, 0]).scale), [3, 0.1]);
  // Any of it may be in the middle, and something of it always is.
  assert.equal(after(large, ["magnifyAt", 1, 0, 0], ["moveTo", 10_000, -9_000]).x, 400);
  // A box that is held stays, whatever comes around it.
  const box = { x: 3000, y: 40, width: 90, height: 40 };
  const held = after(small, ["show", large, { box, shareX: 0, shareY: 0, x: 123, y: 45 }]);
  near([held.x + 3000 * held.scale, held.y + 40 * held.scale], [123, 45]);
  // A drawing that shrinks to fit leaves no gap at its ends.
  const elastic = { width: 1600, height: 500, natural: 4000, isElastic: true };
  assert.deepEqual([300, -5000].map((to) => after(elastic, ["moveTo", to, 80]).x), [0, -800]);
  // One that is broader than the room begins at its first row, until something else is asked for.
  const broad = { width: 800, height: 1500, natural: 800, isElastic: true };
  assert.deepEqual([after(broad).y, after(broad, ["look", { zoom: 1, at: 0, across: 0.6 }]).y], [0, -650]);
});

test("a drawing that is broader than a narrow room is reduced until both halves stand side by side", () => {
  const view = new Viewport();
  view.room = { width: 400, height: 500 };
  view.isVertical = true;
  const extent = { width: 800, height: 500, natural: 700, isElastic: true };
  view.show(extent, null);
  // In the room there is place for a drawing twice as long.
  near([view.x, view.scale, view.length], [0, 0.5, 1000]);
  view.show({ ...extent, height: 1000 }, null);
  near([view.y, view.scale], [0, 0.5]);
  view.look({ zoom: 2, at: 0, across: 0.5 });
  near([view.scale, view.x], [1, -200]);
});
