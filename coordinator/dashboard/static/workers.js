// The table of workers: sortable, with elements for the rows in sight alone.

import { count, duration, element, foreign, percent, short, theirs } from "./figures.js";
import { called, keyOf, worker } from "./store.js";

const HEIGHT = 32;
const COLUMNS = [
  { name: "worker", of: (each) => called(each).toLowerCase(), show: named },
  { name: "device", of: (each) => each.device, show: (each) => theirs(each.device || "private"), kind: "narrowly" },
  { name: "class", of: (each) => each.numeric, show: (each) => element("span", each.numeric || "none", "mono"), kind: "narrowly" },
  { name: "state", of: (each) => each.state, show: (each) => element("span", each.state) },
  { name: "standing", of: (each) => each.standing, show: (each) => element("span", each.standing), kind: "roomy" },
  { name: "steps/s", of: (each) => each.speed, show: (each) => element("span", short(each.speed)), figure: true },
  { name: "share", of: (each) => each.share, show: (each) => element("span", percent(each.share)), figure: true, kind: "roomy" },
  { name: "tasks", of: (each) => each.tasks, show: (each) => element("span", count(each.tasks)), figure: true, kind: "narrowly" },
  { name: "results", of: (each) => each.results, show: (each) => element("span", count(each.results)), figure: true },
  { name: "silent", of: (each) => each.silent, show: (each) => element("span", each.silent ? duration(each.silent) : "now"), figure: true, kind: "narrowly" },
];

export class WorkersTable {
  /** `onChosen` gets the worker whose row was chosen, null where none is. */
  constructor(columns, body, find, onChosen) {
    this.body = body;
    this.spacer = body.querySelector("#spacer");
    this.find = find;
    this.onChosen = onChosen;
    this.rows = [];
    this.shown = [];
    this.made = new Map();
    this.chosen = null;
    this.by = COLUMNS[5];
    this.falling = true;
    this.heads = COLUMNS.map((column) => this.#head(column));
    columns.replaceChildren(...this.heads);
    body.addEventListener("scroll", () => this.#render(), { passive: true });
    body.addEventListener("keydown", (event) => this.#step(event));
    find.addEventListener("input", () => this.#arrange());
    new ResizeObserver(() => this.#render()).observe(body);
    this.#mark();
  }

  /** Shows these rows. */
  show(rows) {
    this.rows = rows;
    this.#arrange();
  }

  #head(column) {
    const head = element("div", "", `${column.kind ?? ""} ${column.figure ? "figure" : ""}`.trim());
    head.setAttribute("role", "columnheader");
    const button = element("button", column.name);
    button.type = "button";
    button.addEventListener("click", () => {
      this.falling = this.by === column ? !this.falling : Boolean(column.figure);
      this.by = column;
      this.#mark();
      this.#arrange();
    });
    head.append(button);
    return head;
  }

  #mark() {
    COLUMNS.forEach((column, index) => {
      const sorted = column === this.by;
      this.heads[index].setAttribute("aria-sort", sorted ? (this.falling ? "descending" : "ascending") : "none");
      this.heads[index].firstChild.textContent = column.name + (sorted ? (this.falling ? " ↓" : " ↑") : "");
    });
  }

  #arrange() {
    const words = this.find.value.trim().toLowerCase();
    const views = this.rows.map((row) => ({ key: keyOf(row), row, ...worker(row) }));
    const found = words ? views.filter((each) => `${each.name} ${each.device} ${each.worker} ${each.state} ${each.standing} ${each.numeric}`.toLowerCase().includes(words)) : views;
    const sign = this.falling ? -1 : 1;
    const value = this.by.of;
    found.sort((a, b) => sign * compare(value(a), value(b)) || compare(a.key, b.key));
    this.shown = found;
    this.spacer.style.height = `${Math.max(1, found.length) * HEIGHT}px`;
    this.#render();
    if (this.chosen) this.onChosen(found.find((each) => each.key === this.chosen) ?? null);
  }

  #render() {
    const first = Math.max(0, Math.floor(this.body.scrollTop / HEIGHT) - 4);
    const last = Math.min(this.shown.length, first + Math.ceil(this.body.clientHeight / HEIGHT) + 8);
    const wanted = new Set();
    for (let index = first; index < last; index += 1) {
      const each = this.shown[index];
      wanted.add(each.key);
      const made = this.made.get(each.key) ?? this.#make(each);
      if (made.row !== each.row) this.#write(made, each);
      if (made.index !== index) {
        made.index = index;
        made.element.style.top = `${index * HEIGHT}px`;
        made.element.setAttribute("aria-rowindex", index + 1);
      }
      made.element.classList.toggle("chosen", each.key === this.chosen);
    }
    for (const [key, made] of this.made) {
      if (wanted.has(key)) continue;
      made.element.remove();
      this.made.delete(key);
    }
    const none = this.body.querySelector(".none");
    if (this.shown.length) none?.remove();
    else if (!none) this.spacer.append(element("p", "no worker", "none"));
  }

  #make(each) {
    const row = element("div", "", "row");
    row.setAttribute("role", "row");
    row.addEventListener("click", () => this.#choose(each.key));
    this.body.append(row);
    const made = { element: row, row: null, index: -1 };
    this.made.set(each.key, made);
    return made;
  }

  #write(made, each) {
    made.row = each.row;
    made.element.replaceChildren(
      ...COLUMNS.map((column) => {
        const cell = column.show(each);
        cell.classList.add("cell", ...(column.kind ? [column.kind] : []), ...(column.figure ? ["figure"] : []));
        cell.setAttribute("role", "cell");
        return cell;
      }),
    );
  }

  #choose(key) {
    this.chosen = this.chosen === key ? null : key;
    this.#render();
    this.onChosen(this.shown.find((each) => each.key === this.chosen) ?? null);
  }

  #step(event) {
    const turn = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!turn || !this.shown.length) return;
    event.preventDefault();
    const at = this.shown.findIndex((each) => each.key === this.chosen);
    const next = Math.min(this.shown.length - 1, Math.max(0, at + turn));
    this.chosen = this.shown[next].key;
    this.body.scrollTop = Math.max(next * HEIGHT - this.body.clientHeight + HEIGHT, Math.min(this.body.scrollTop, next * HEIGHT));
    this.#render();
    this.onChosen(this.shown[next]);
  }
}

function named(each) {
  const cell = element("span");
  cell.append(theirs(called(each)), element("span", ` ${foreign(each.worker).slice(0, 16)}`, "quiet-text mono"));
  return cell;
}

const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
