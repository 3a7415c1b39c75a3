/** @param {HTMLCanvasElement} canvas @param {number} width px @param {number} height
 * @returns {CanvasRenderingContext2D | null} in px, empty, at the resolution of the screen */
export function surface(canvas, width, height) {
  const ratio = devicePixelRatio;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across) canvas.width = across;
  if (canvas.height !== down) canvas.height = down;
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  context?.clearRect(0, 0, width, height);
  return context;
}
