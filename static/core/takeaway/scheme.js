/** The colours of css/tokens.css for what is drawn where no style sheet is: a test holds the two together. */

/** @type {Record<"light" | "dark", ColourScheme>} */
export const SCHEMES = {
  light: {
    "paper": "#ffffff",
    "raised": "#ffffff",
    "ink": "#1c2126",
    "ink-soft": "#49515a",
    "ink-muted": "#656e78",
    "line": "#e4e4e0",
    "forward": "#1f6fb5",
    "forward-soft": "#eef5fb",
    "backward": "#c23b22",
    "backward-soft": "#fcf1ee",
    "parameter": "#b27d00",
    "neutral": "#77808a",
    "warning": "#8a3ca5",
  },
  dark: {
    "paper": "#14171a",
    "raised": "#20252a",
    "ink": "#e8eaec",
    "ink-soft": "#bcc3ca",
    "ink-muted": "#929ba4",
    "line": "#2b3137",
    "forward": "#62aee8",
    "forward-soft": "#18242e",
    "backward": "#f07b62",
    "backward-soft": "#2b1d1a",
    "parameter": "#dcae3a",
    "neutral": "#98a1aa",
    "warning": "#cf92e6",
  },
};
