/** An SVG document as a PNG, drawn by the browser. */

const SCALE = 2;
/** Canvases larger than this cannot be had everywhere, px along a side and in all. */
const MOST_SIDE = 16_384;
const MOST_PIXELS = 2 ** 26;

/**
 * @param {string} svg a document with width and height
 * @returns {Promise<Blob>} twice as large, less where that would be too large for a canvas
 * @throws {Error} the browser cannot draw it
 */
export async function graphPng(svg) {
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const { naturalWidth: width, naturalHeight: height } = image;
    const scale = Math.min(SCALE, MOST_SIDE / Math.max(width, height), Math.sqrt(MOST_PIXELS / (width * height)));
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.round(width * scale));
    canvas.height = Math.max(1, Math.round(height * scale));
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    const blob = await new Promise((/** @type {(blob: Blob | null) => void} */ resolve) =>
      canvas.toBlob(resolve, "image/png")
    );
    if (blob === null) throw new Error("the picture is too large for this browser");
    return blob;
  } finally {
    URL.revokeObjectURL(address);
  }
}
