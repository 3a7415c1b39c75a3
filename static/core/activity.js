/** Whether the page works: `<body data-idle>` is there while no answer is awaited, nothing is laid out or drawn, and no
 * timer of `later` runs. Tests wait for it. Not counted: announcements, Plotly's takeover of a chart at rest (class
 * `at-rest`), and new tries while the server is away. */

/** null in a worker and outside a browser */
const body = typeof document === "undefined" ? null : document.body;

let count = 0;
let begun = 0;
/** The ends of the timers of `later`. @type {Map<number, () => void>} */
const timers = new Map();

/** @returns {() => void} ends what has begun; to call it again does nothing */
export function begin() {
  count += 1;
  begun += 1;
  body?.removeAttribute("data-idle");
  let isOver = false;
  return () => {
    if (isOver) return;
    isOver = true;
    count -= 1;
    if (count === 0) settle();
  };
}

/** Sets the attribute after a frame in which nothing began. */
function settle() {
  if (body === null) return;
  const before = begun;
  requestAnimationFrame(() =>
    setTimeout(() => {
      if (count === 0 && begun === before) body.setAttribute("data-idle", "");
    })
  );
}

/** @template T @param {Promise<T>} promise @returns {Promise<T>} the same */
export function during(promise) {
  const end = begin();
  promise.then(end, end);
  return promise;
}

/** `setTimeout`, counted. @param {() => void} act @param {number} [ms] @returns {number} for `cancel` */
export function later(act, ms = 0) {
  const end = begin();
  const timer = setTimeout(() => {
    timers.delete(timer);
    endAfter(act, end);
  }, ms);
  timers.set(timer, end);
  return timer;
}

/** @param {number | undefined} timer of `later` */
export function cancel(timer = 0) {
  clearTimeout(timer);
  timers.get(timer)?.();
  timers.delete(timer);
}

/** `requestAnimationFrame`, counted. @param {() => void} act @returns {number} */
export function atFrame(act) {
  const end = begin();
  return requestAnimationFrame(() => endAfter(act, end));
}

/** @param {() => void} act @returns {() => void} calls `act` at the next frame, once however often it is called */
export function oncePerFrame(act) {
  let isAsked = false;
  return () => {
    if (isAsked) return;
    isAsked = true;
    atFrame(() => {
      isAsked = false;
      act();
    });
  };
}

/** @param {() => void} act @param {() => void} end */
function endAfter(act, end) {
  try {
    act();
  } finally {
    end();
  }
}
