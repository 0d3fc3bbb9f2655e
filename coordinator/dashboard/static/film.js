// The latest policy playing: frames come while they are in sight, and only then are any made.

import { foreign, worth } from "./figures.js";

export class Film {
  constructor(image, none, caption, button) {
    this.image = image;
    this.none = none;
    this.caption = caption;
    this.button = button;
    this.wanted = !matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.inSight = false;
    this.instance = null;
    this.playing = false;
    button.addEventListener("click", () => {
      this.wanted = !this.wanted;
      this.#look();
    });
    image.addEventListener("load", () => this.#see(true));
    image.addEventListener("error", () => this.#stop());
    document.addEventListener("visibilitychange", () => this.#look());
    new IntersectionObserver((seen) => {
      this.inSight = seen.at(-1).isIntersecting;
      this.#look();
    }).observe(image.parentElement);
    this.#look();
  }

  /** What the host says of the film, and which host it is. */
  show(news, instance) {
    if (this.instance !== instance) {
      this.#stop();
      this.instance = instance;
    }
    if (news.error) this.#see(false, foreign(news.error));
    else if (news.version != null) {
      this.caption.textContent = `version ${news.version}, episode ${news.episode}: return ${worth(news.return)} after ${news.steps} steps${news.over ? ", over" : ""}`;
    }
    this.#look();
  }

  #look() {
    this.button.textContent = this.wanted ? "Pause" : "Play";
    const due = this.wanted && this.inSight && !document.hidden && this.instance !== null;
    if (due && !this.playing) {
      this.playing = true;
      this.none.textContent = "Starting…";
      this.image.src = `/film?${Date.now()}`;
    } else if (!due && this.playing) this.#stop();
  }

  #stop() {
    this.playing = false;
    this.image.removeAttribute("src");
    this.#see(false, this.wanted ? "The policy plays while this is in sight." : "Paused.");
  }

  #see(seen, why = "") {
    this.image.hidden = !seen;
    this.none.hidden = seen;
    if (!seen) {
      this.none.textContent = why;
      this.caption.textContent = "";
    }
  }
}
