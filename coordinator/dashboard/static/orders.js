// Orders of whoever has the host's token, which stays in this page.

import { element, foreign } from "./figures.js";

export class Orders {
  constructor(section, token, answer) {
    this.section = section;
    this.token = token;
    this.answer = answer;
    for (const button of section.querySelectorAll("[data-order]")) {
      button.addEventListener("click", () => this.#ask(button.dataset.order));
    }
  }

  /** Whether the host takes any. */
  allow(taken) {
    this.section.hidden = !taken;
  }

  /** Buttons for what may be done with a worker. */
  buttons(each) {
    if (this.section.hidden) return [];
    const wanted = each.standing === "banned" || each.standing === "quarantined" ? ["unban"] : ["ban"];
    return [...wanted, "audit", "trust"].map((order) => {
      const button = element("button", order, order === "ban" ? "danger" : "");
      button.type = "button";
      button.addEventListener("click", () => this.#ask(order, each.worker));
      return button;
    });
  }

  #ask(order, worker = "") {
    const asks = { ban: `Ban ${worker}? It gets no tasks any more.`, stop: "Stop the run? Its workers leave; it can be resumed." };
    if (order in asks && !confirm(asks[order])) return;
    this.#give({ order, ...(worker ? { worker } : {}) });
  }

  async #give(order) {
    try {
      const done = await fetch("/orders", {
        method: "POST",
        headers: { Authorization: `Bearer ${this.token.value}`, "Content-Type": "application/json" },
        body: JSON.stringify(order),
      });
      const said = await done.json();
      this.answer.textContent = done.ok ? `${order.order}: the host does it` : foreign(said.error);
    } catch {
      this.answer.textContent = "the host can't be reached";
    }
  }
}
