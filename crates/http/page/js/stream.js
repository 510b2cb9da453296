// The event stream, read with fetch(), since EventSource cannot send a token. It comes back by itself.

import { open } from "./api.js";

const SLOWEST = 10_000;
// The agent says something every 15 seconds; a connection that is silent for longer is none.
const SILENT = 40_000;

/** Cuts a stream of text into events. */
export class EventReader {
  #lines = [];
  #rest = [];

  /** Takes some text, and gives the events that are whole. */
  *take(text) {
    let start = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
      this.#rest.push(text.slice(start, end));
      const line = this.#rest.join("").replace(/\r$/, "");
      this.#rest = [];
      start = end + 1;
      if (line) {
        this.#lines.push(line);
      } else {
        const event = this.#event();
        if (event) yield event;
      }
    }
    if (start < text.length) this.#rest.push(text.slice(start));
  }

  #event() {
    const event = { type: "message", id: undefined, data: [] };
    for (const line of this.#lines) {
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "event") event.type = value;
      if (field === "id") event.id = value;
      if (field === "data") event.data.push(value);
    }
    this.#lines = [];
    return event.data.length ? { ...event, data: event.data.join("\n") } : null;
  }
}

/** Follows the agent for ever. `on.event(type, data)`, `on.state(state, problem, again)`; stops at 401 and 403. */
export class Stream {
  #on;
  #last;
  #failures = 0;
  #abort = null;
  #timer = 0;

  constructor(on) {
    this.#on = on;
  }

  start() {
    clearTimeout(this.#timer);
    this.#abort?.abort();
    this.#run(this.#abort = new AbortController());
  }

  async #run(abort) {
    this.#on.state("connecting");
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(() => abort.abort(), SILENT);
    };
    let problem = null;
    try {
      heard();
      const more = this.#last ? { "last-event-id": this.#last } : {};
      const answer = await open("v1/events", { headers: { accept: "text/event-stream", ...more }, signal: abort.signal });
      const text = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const reader = new EventReader();
      for (;;) {
        const { done, value } = await text.read();
        if (done) break;
        heard();
        for (const event of reader.take(value)) this.#take(event);
      }
    } catch (error) {
      problem = error;
    } finally {
      clearTimeout(silence);
    }
    if (this.#abort === abort) this.#again(problem);
  }

  #take(event) {
    if (event.id !== undefined) this.#last = event.id;
    if (event.type === "snapshot") {
      this.#failures = 0;
      this.#on.state("live");
    }
    this.#on.event(event.type, JSON.parse(event.data));
  }

  #again(problem) {
    if (problem?.status === 401 || problem?.status === 403) {
      this.#on.state("denied", problem);
      return;
    }
    const pause = Math.min(SLOWEST, 250 * 2 ** this.#failures) * (0.75 + Math.random() / 2);
    this.#failures += 1;
    this.#on.state("away", problem, Date.now() + pause);
    this.#timer = setTimeout(() => this.start(), pause);
  }
}
