// Curves on a canvas: lines, bands, points, a target; values where the pointer is, or by arrow keys.

const LEFT = 54;
const BOTTOM = 34;
const TOP = 10;
const RIGHT = 14;

export class Chart {
  constructor(canvas) {
    this.canvas = canvas;
    this.tip = canvas.parentElement.querySelector(".tip");
    this.model = null;
    this.at = null;
    canvas.addEventListener("pointermove", (event) => this.point(event.offsetX));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("blur", () => this.point(null));
    canvas.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /** Shows {xName, xText, yText, series: [{name, colour, kind, dash, points: [[x, y, low, high]], text}], target}. */
  show(model) {
    this.model = model;
    this.draw();
  }

  point(x) {
    this.at = x;
    this.draw();
  }

  step(event) {
    const turn = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!turn || !this.scale) return;
    event.preventDefault();
    this.point(Math.min(this.width - RIGHT, Math.max(LEFT, (this.at ?? LEFT) + turn * 8)));
  }

  draw() {
    const { canvas, model } = this;
    const pen = sized(canvas);
    this.width = canvas.clientWidth;
    this.height = canvas.clientHeight;
    this.scale = null;
    this.tip.hidden = true;
    if (!this.width || !model) return;
    const ink = colours();
    const seen = model.series.filter((each) => each.points.length);
    pen.font = "12px system-ui, sans-serif";
    if (!seen.length) {
      pen.fillStyle = ink.soft;
      pen.fillText("nothing yet", LEFT, this.height / 2);
      return;
    }
    const scale = (this.scale = this.range(seen));
    this.axes(pen, ink, scale);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, TOP - 4, this.width - LEFT - RIGHT + 4, this.height - TOP - BOTTOM + 8);
    pen.clip();
    for (const each of seen) drawSeries(pen, ink[each.colour], each, scale, this.width);
    if (model.target != null) drawTarget(pen, ink, scale.y(model.target), this.width);
    pen.restore();
    if (this.at !== null) this.hover(pen, ink, seen, scale);
  }

  range(seen) {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const each of seen) {
      for (const [x, y, low, high] of each.points) {
        x0 = Math.min(x0, x);
        x1 = Math.max(x1, x);
        y0 = Math.min(y0, y ?? y0, low ?? y0);
        y1 = Math.max(y1, y ?? y1, high ?? y1);
      }
    }
    if (this.model.target != null) {
      y0 = Math.min(y0, this.model.target);
      y1 = Math.max(y1, this.model.target);
    }
    if (this.model.fromZero) y0 = Math.min(0, y0);
    if (!(x1 > x0)) x1 = x0 + 1;
    if (!(y1 > y0)) [y0, y1] = [y0 - 1, y1 + 1];
    const room = 0.05 * (y1 - y0);
    if (!this.model.fromZero) y0 -= room;
    y1 += room;
    const [w, h] = [this.width - LEFT - RIGHT, this.height - TOP - BOTTOM];
    return {
      x0, x1, y0, y1,
      x: (value) => LEFT + ((value - x0) / (x1 - x0)) * w,
      y: (value) => TOP + (1 - (value - y0) / (y1 - y0)) * h,
      back: (place) => x0 + ((place - LEFT) / w) * (x1 - x0),
    };
  }

  axes(pen, ink, scale) {
    pen.strokeStyle = ink.grid;
    pen.fillStyle = ink.soft;
    pen.lineWidth = 1;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    for (const tick of ticks(scale.y0, scale.y1, this.height / 55)) {
      const y = Math.round(scale.y(tick)) + 0.5;
      line(pen, LEFT, y, this.width - RIGHT, y);
      pen.fillText(this.model.yText(tick), LEFT - 7, y);
    }
    pen.textBaseline = "top";
    pen.textAlign = "center";
    for (const tick of ticks(scale.x0, scale.x1, this.width / 110, this.model.xSteps)) {
      pen.fillText(this.model.xText(tick), scale.x(tick), this.height - BOTTOM + 6);
    }
    pen.textAlign = "right";
    pen.fillText(this.model.xName, this.width - RIGHT, this.height - 13);
    pen.textAlign = "left";
    pen.fillText(this.model.yName, 2, this.height - 13);
  }

  hover(pen, ink, seen, scale) {
    const wanted = scale.back(this.at);
    const first = nearest(seen[0].points, wanted);
    const place = scale.x(first[0]);
    pen.strokeStyle = ink.ink;
    pen.setLineDash([2, 3]);
    line(pen, place, TOP, place, this.height - BOTTOM);
    pen.setLineDash([]);
    const told = [`${this.model.xName} ${this.model.xText(first[0])}`];
    for (const each of seen) {
      const found = nearest(each.points, first[0]);
      if (each.kind === "points" && Math.abs(scale.x(found[0]) - place) > 30) continue;
      told.push(`${each.name}: ${each.text(found)}`);
      if (found[1] == null) continue;
      pen.fillStyle = ink[each.colour];
      pen.beginPath();
      pen.arc(scale.x(found[0]), scale.y(found[1]), 4, 0, 7);
      pen.fill();
    }
    showTip(this.tip, told.join("\n"), place, TOP + 4, this.width);
  }
}

/** A small picture of how a series is drawn, for the legend. */
export function sample(canvas, series) {
  canvas.width = 60;
  canvas.height = 24;
  const pen = canvas.getContext("2d");
  const scale = { x: (x) => x, y: (y) => y };
  drawSeries(pen, colours()[series.colour], { ...series, points: [[6, 12, 4, 20], [30, 12, 4, 20], [54, 12, 4, 20]], wide: true }, scale, 60);
}

/** Shows a tip beside a place, within the width. */
export function showTip(tip, text, x, y, width) {
  tip.textContent = text;
  tip.hidden = false;
  const beside = x + 14 + tip.offsetWidth > width ? x - 14 - tip.offsetWidth : x + 14;
  tip.style.left = `${Math.max(0, beside)}px`;
  tip.style.top = `${y}px`;
}

/** The canvas in the pixels of the screen, empty; its pen works in those of the page. */
export function sized(canvas) {
  const dots = devicePixelRatio || 1;
  const [w, h] = [Math.round(canvas.clientWidth * dots), Math.round(canvas.clientHeight * dots)];
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const pen = canvas.getContext("2d");
  pen.setTransform(dots, 0, 0, dots, 0, 0);
  pen.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return pen;
}

/** The colours of the page, light or dark. */
export function colours() {
  const style = getComputedStyle(document.documentElement);
  const named = ["ink", "soft", "grid", "line", "accent", "second", "third", "good", "bad", "band", "card", "paper"];
  return Object.fromEntries(named.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function drawSeries(pen, colour, series, scale, width) {
  const every = Math.max(1, Math.floor(series.points.length / (2 * width)));
  const points = every > 1 ? series.points.filter((_, i) => i % every === 0) : series.points;
  pen.strokeStyle = pen.fillStyle = colour;
  pen.lineWidth = series.wide ? 3 : 1.8;
  if (series.band) {
    const both = points.filter((each) => each[2] != null);
    pen.globalAlpha = 0.17;
    pen.beginPath();
    for (const [x, , , high] of both) pen.lineTo(scale.x(x), scale.y(high));
    for (const [x, , low] of both.toReversed()) pen.lineTo(scale.x(x), scale.y(low));
    pen.fill();
    pen.globalAlpha = 1;
  }
  if (series.kind === "points") {
    for (const [x, y, low, high] of points) {
      if (y == null) continue;
      pen.fillRect(scale.x(x) - 3, scale.y(y) - 3, 6, 6);
      if (low != null) line(pen, scale.x(x), scale.y(low), scale.x(x), scale.y(high));
    }
    return;
  }
  pen.setLineDash(series.dash ?? []);
  pen.beginPath();
  let drawing = false;
  for (const [x, y] of points) {
    if (y == null) {
      drawing = false;
      continue;
    }
    if (drawing) pen.lineTo(scale.x(x), scale.y(y));
    else pen.moveTo(scale.x(x), scale.y(y));
    drawing = true;
  }
  pen.stroke();
  pen.setLineDash([]);
}

function drawTarget(pen, ink, y, width) {
  pen.strokeStyle = ink.good;
  pen.lineWidth = 1.5;
  pen.setLineDash([9, 5]);
  line(pen, LEFT, y, width - RIGHT, y);
  pen.setLineDash([]);
  pen.fillStyle = ink.good;
  pen.textAlign = "left";
  pen.textBaseline = "bottom";
  pen.fillText("target", LEFT + 5, y - 2);
}

function line(pen, x0, y0, x1, y1) {
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
}

function nearest(points, x) {
  let [low, high] = [0, points.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < x) low = middle;
    else high = middle;
  }
  return x - points[low][0] < points[high][0] - x ? points[low] : points[high];
}

function ticks(low, high, about, steps = []) {
  const raw = (high - low) / Math.max(2, about);
  const size = 10 ** Math.floor(Math.log10(raw));
  const named = raw >= 1 ? steps.find((each) => each >= raw) : undefined;
  const step = named ?? size * ([1, 2, 5].find((each) => each * size >= raw) ?? 10);
  const found = [];
  for (let tick = Math.ceil(low / step); tick * step <= high && found.length < 40; tick += 1) found.push(tick * step);
  return found;
}
