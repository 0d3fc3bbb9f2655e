// The map of the pool: a tile for each worker, as large as its share, patterned by numeric class.

import { colours, showTip, sized } from "./chart.js";
import { element, fill, foreign, percent, short } from "./figures.js";
import { called, worker } from "./store.js";

const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#777777"];
const PATTERNS = 8;
const SIGNS = { working: "▶", waiting: "…", resting: "z", paused: "‖" };
const LEAST = 0.15;
const MANY = 200;
const MANY_MS = 3000; // between two pictures of many tiles, which take a while to draw

export class PoolMap {
  constructor(canvas, legend) {
    this.canvas = canvas;
    this.legend = legend;
    this.tip = canvas.parentElement.querySelector(".tip");
    this.rows = [];
    this.tiles = [];
    this.order = [];
    this.shownAt = 0;
    canvas.addEventListener("pointermove", (event) => this.hover(event.offsetX, event.offsetY));
    canvas.addEventListener("pointerleave", () => (this.tip.hidden = true));
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Shows these rows; `classes` says how many there are of each numeric class, the largest first. */
  show(rows, classes) {
    const now = performance.now();
    if (rows.length > MANY && this.rows.length > MANY && now - this.shownAt < MANY_MS) return;
    this.shownAt = now;
    this.rows = rows.map(worker).sort((a, b) => b.share - a.share);
    this.order = Object.keys(classes);
    this.draw();
    const states = Object.entries(SIGNS).map(([state, sign]) => `${sign} ${state}`).join("   ");
    fill(this.legend, [classes, colours().card], () => [
      ...this.order.slice(0, PATTERNS).map((name, index) => this.#entry(name, index, classes[name])),
      element("li", states),
    ]);
  }

  draw() {
    const pen = sized(this.canvas);
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    if (!width) return;
    const ink = colours();
    if (!this.rows.length) {
      this.tiles = [];
      pen.font = "13px system-ui, sans-serif";
      pen.fillStyle = ink.soft;
      pen.fillText("no worker is here", 8, 24);
      return;
    }
    const least = LEAST / this.rows.length;
    const sizes = this.rows.map((each) => Math.max(each.share, least));
    this.tiles = squarified(sizes, 0, 0, width, height);
    this.patterns = [...Array(PATTERNS).keys()].map((index) => patterned(pen, index, ink));
    this.rows.forEach((each, index) => this.#tile(pen, ink, each, this.tiles[index]));
  }

  hover(x, y) {
    const index = this.tiles.findIndex(([l, t, w, h]) => x >= l && x < l + w && y >= t && y < t + h);
    if (index < 0) {
      this.tip.hidden = true;
      return;
    }
    const each = this.rows[index];
    const said = [
      foreign(called(each)), foreign(each.device), `${each.state}, ${each.standing}, ${each.tasks} tasks`,
      `${short(each.speed)} steps/s, ${percent(each.share)} of the pool`, `class ${each.numeric || "none"}`,
      foreign(each.trouble),
    ];
    showTip(this.tip, said.filter(Boolean).join("\n"), x, Math.min(y, this.canvas.clientHeight - 90), this.canvas.clientWidth);
  }

  #tile(pen, ink, each, [x, y, w, h]) {
    const index = Math.min(Math.max(0, this.order.indexOf(each.numeric)), PATTERNS - 1);
    pen.fillStyle = this.patterns[index];
    pen.globalAlpha = each.state === "working" ? 0.85 : 0.4;
    pen.fillRect(x, y, w, h);
    pen.globalAlpha = 1;
    pen.strokeStyle = ink.card;
    pen.lineWidth = w > 8 && h > 8 ? 2 : 0.5;
    pen.strokeRect(x, y, w, h);
    if (w < 12 || h < 14) return;
    const roomy = w > 62 && h > 36;
    const first = roomy ? foreign(called(each)).slice(0, Math.floor(w / 7)) : SIGNS[each.state];
    pen.font = `${roomy ? "600 12px" : "600 11px"} system-ui, sans-serif`;
    pen.textBaseline = "top";
    pen.textAlign = "left";
    label(pen, ink, first, x + 3, y + 3, w - 6);
    if (roomy) {
      pen.font = "11px system-ui, sans-serif";
      label(pen, ink, `${SIGNS[each.state]} ${each.state}`, x + 3, y + 19, w - 6);
    }
  }

  #entry(name, index, many) {
    const entry = element("li");
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [30, 12];
    const pen = canvas.getContext("2d");
    pen.fillStyle = patterned(pen, index, colours());
    pen.fillRect(0, 0, 30, 12);
    const rest = index === PATTERNS - 1 && this.order.length > PATTERNS ? " and others" : "";
    entry.append(canvas, `class ${name || "none"}${rest} (${many})`);
    return entry;
  }
}

/** Text on a plate, so that it can be read on any pattern. */
function label(pen, ink, text, x, y, room) {
  const width = Math.min(room, pen.measureText(text).width + 4);
  pen.save();
  pen.beginPath();
  pen.rect(x - 1, y - 1, width, 14);
  pen.clip();
  pen.fillStyle = ink.card;
  pen.fillRect(x - 1, y - 1, width, 14);
  pen.fillStyle = ink.ink;
  pen.fillText(text, x + 1, y);
  pen.restore();
}

/** The fill of a numeric class: a colour, and a pattern that tells it without the colour. */
function patterned(pen, index, ink) {
  const side = 12;
  const tile = document.createElement("canvas");
  [tile.width, tile.height] = [side, side];
  const brush = tile.getContext("2d");
  brush.fillStyle = HUES[index];
  brush.fillRect(0, 0, side, side);
  brush.strokeStyle = brush.fillStyle = ink.card;
  brush.lineWidth = 2;
  const lines = {
    1: [[0, 12, 12, 0]],
    3: [[0, 12, 12, 0], [0, 0, 12, 12]],
    4: [[0, 6, 12, 6]],
    5: [[6, 0, 6, 12]],
    6: [[0, 6, 12, 6], [6, 0, 6, 12]],
  }[index] ?? [];
  for (const [x0, y0, x1, y1] of lines) {
    brush.beginPath();
    brush.moveTo(x0, y0);
    brush.lineTo(x1, y1);
    brush.stroke();
  }
  if (index === 2 || index === 7) {
    brush.beginPath();
    brush.arc(6, 6, index === 2 ? 2.5 : 4, 0, 7);
    if (index === 2) brush.fill();
    else brush.stroke();
  }
  return pen.createPattern(tile, "repeat");
}

/** Rectangles [x, y, width, height] of these sizes, largest first, as square as can be (Bruls and others, 2000). */
function squarified(sizes, x, y, w, h) {
  const scale = (w * h) / sizes.reduce((sum, each) => sum + each, 0);
  const areas = sizes.map((each) => each * scale);
  const tiles = [];
  for (let begin = 0; begin < areas.length; ) {
    const side = Math.max(1e-9, Math.min(w, h));
    let [end, sum, worst] = [begin, 0, Infinity];
    while (end < areas.length) {
      const total = sum + areas[end];
      const square = total * total;
      const next = Math.max((side * side * areas[begin]) / square, square / (side * side * areas[end]));
      if (next > worst) break;
      [sum, worst, end] = [total, next, end + 1];
    }
    const depth = sum / side;
    let along = 0;
    for (const area of areas.slice(begin, end)) {
      const length = area / depth;
      tiles.push(w >= h ? [x, y + along, depth, length] : [x + along, y, length, depth]);
      along += length;
    }
    if (w >= h) [x, w] = [x + depth, w - depth];
    else [y, h] = [y + depth, h - depth];
    begin = end;
  }
  return tiles;
}
