// What the page knows of the run: the whole picture, then what is new, each item once.

const REELS = { members: 4000, centres: 4000, updates: 100, events: 200 };
const RATE_SECONDS = 10;

export class Store {
  constructor() {
    this.clear();
  }

  clear() {
    this.summary = null;
    this.workers = new Map();
    this.next = {};
    this.samples = [];
    for (const name of Object.keys(REELS)) this[name] = [];
  }

  /** Takes in what the host told; whether workers changed. */
  take(told) {
    if (told.whole) {
      this.clear();
      for (const name of Object.keys(REELS)) {
        this[name] = told[name].items;
        this.next[name] = told[name].next;
      }
    } else {
      for (const [name, most] of Object.entries(REELS)) this.#add(name, told[name], most);
      for (const row of told.gone) this.workers.delete(keyOf(row));
    }
    for (const row of told.workers) this.workers.set(keyOf(row), row);
    this.summary = told.summary;
    this.#sample();
    return told.whole || told.workers.length > 0 || told.gone.length > 0;
  }

  /** A figure of the summary, each second over the last few. */
  rate(name) {
    const last = this.samples.at(-1);
    const first = this.samples[0];
    if (!last || last.time - first.time < 1) return null;
    return (last[name] - first[name]) / (last.time - first.time);
  }

  #add(name, news, most) {
    if (!news) return;
    const lacking = news.items.slice(Math.max(0, this.next[name] - news.first));
    this.next[name] = news.first + news.items.length;
    this[name].push(...lacking);
    if (this[name].length <= most) return;
    if (name === "members" || name === "centres") this[name] = this[name].filter((_, i, all) => i % 2 === 0 || i === all.length - 1);
    else this[name].splice(0, this[name].length - most);
  }

  #sample() {
    const { time, episodes, steps, wire_bytes } = this.summary;
    if (episodes == null) return;
    this.samples.push({ time, episodes, steps, wire_bytes });
    while (this.samples.length > 2 && time - this.samples[0].time > RATE_SECONDS) this.samples.shift();
  }
}

export const keyOf = (row) => `${row[0]}/${row[1]}`;

/** Fields of a worker's row, by name. */
export const worker = (row) => ({
  worker: row[0], session: row[1], name: row[2], device: row[3], numeric: row[4], standing: row[5],
  state: row[6], speed: row[7], share: row[8], tasks: row[9], results: row[10], silent: row[11], trouble: row[12],
});

/** What a worker is called: its label, or what stands for it. */
export const called = (each) => each.name || (each.device ? each.worker.slice(0, 6) : "private");
