// Hears the host: connects, notices silence, and comes back by itself.

const SILENT_MS = 4000;
const AGAIN_MS = 3000;

export class Stream {
  /** `onTold` gets what the host says, `onLink` whether it speaks and when it last did. */
  constructor(onTold, onLink) {
    this.onTold = onTold;
    this.onLink = onLink;
    this.heard = null;
    this.connect();
    setInterval(() => this.look(), 500);
  }

  connect() {
    this.source = new EventSource("/stream");
    this.source.onmessage = (event) => {
      this.heard = Date.now();
      this.onTold(JSON.parse(event.data));
      this.look();
    };
    this.source.onerror = () => {
      // Where the answer was an error the browser does not try again.
      if (this.source.readyState === EventSource.CLOSED) setTimeout(() => this.connect(), AGAIN_MS);
      this.look();
    };
  }

  look() {
    const recent = this.heard !== null && Date.now() - this.heard < SILENT_MS;
    this.onLink(recent && this.source.readyState === EventSource.OPEN, this.heard);
  }
}
