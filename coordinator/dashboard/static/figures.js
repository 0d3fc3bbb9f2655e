// How numbers and strangers' words are shown.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const count = (value) => (value == null ? "–" : WHOLE.format(value));

/** A number in at most four characters and a unit prefix. */
export function short(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  for (const [unit, name] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (size >= unit) return `${trimmed(value / unit)} ${name}`;
  }
  return size >= 100 ? WHOLE.format(value) : trimmed(value);
}

const trimmed = (value) => String(Number(value.toPrecision(3)));

/** A return: one decimal, or three digits where it is small. */
export function worth(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  return Math.abs(value) >= 1 || value === 0 ? value.toFixed(1) : String(Number(value.toPrecision(3)));
}

export const bytes = (value) => (value == null ? "–" : `${short(value)}B`);

export const percent = (value) => `${(100 * value).toFixed(value < 0.1 ? 1 : 0)} %`;

/** Seconds as people say them. */
export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return "–";
  if (seconds < 1 && seconds > 0) return `${Math.max(1, Math.round(1000 * seconds))} ms`;
  if (seconds < 60) return `${seconds < 10 ? Number(seconds.toFixed(1)) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  const parts = minutes < 60 ? [minutes, "min", Math.floor(seconds % 60), "s"] : [Math.floor(minutes / 60), "h", minutes % 60, "min"];
  return parts.slice(0, parts[2] ? 4 : 2).join(" ");
}

export const clock = (unix) => new Date(1000 * unix).toLocaleTimeString("en-GB");

const STEERING = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;
const LONGEST = 200;

/** What a stranger wrote, as text that can neither steer what is around it nor flood it. */
export function foreign(text) {
  const said = String(text ?? "").replace(STEERING, "·");
  return said.length > LONGEST ? `${said.slice(0, LONGEST)}…` : said;
}

/** An element with text in it, which is never markup. */
export function element(name, text = "", kind = "") {
  const made = document.createElement(name);
  if (text !== "") made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

/** An element for what a stranger wrote. */
export function theirs(text, kind = "") {
  return element("bdi", foreign(text), kind);
}

/** Replaces what an element holds, where it differs: the same again costs the page nothing. */
export function fill(place, key, make) {
  const mark = JSON.stringify(key);
  if (place.dataset.mark === mark) return;
  place.dataset.mark = mark;
  place.replaceChildren(...make());
}
