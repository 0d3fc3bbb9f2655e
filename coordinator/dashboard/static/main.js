// Puts what the host tells into the page.

import { Chart, sample } from "./chart.js";
import { bytes, clock, count, duration, element, fill, foreign, percent, short, theirs, worth } from "./figures.js";
import { Film } from "./film.js";
import { Orders } from "./orders.js";
import { PoolMap } from "./pool.js";
import { Store, called } from "./store.js";
import { Stream } from "./stream.js";
import { WorkersTable } from "./workers.js";

const at = (id) => document.getElementById(id);
const store = new Store();
const returns = new Chart(at("returns"));
const throughput = new Chart(at("throughput"));
const pool = new PoolMap(at("pool"), at("pool-legend"));
const film = new Film(at("film"), at("film-none"), at("film-caption"), at("film-switch"));
const orders = new Orders(at("orders"), at("token"), at("answer"));
const table = new WorkersTable(at("columns"), at("body"), at("find"), showDetails);

const STATES = { running: "▶ running", paused: "‖ paused", finished: "✓ finished", stopped: "■ stopped" };
const ROLES = { following: "following: somebody else leads", starting: "starting", over: "over" };
const AXES = {
  version: { name: "version", of: 0, text: short },
  time: { name: "time", of: 1, text: duration, steps: [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400] },
  episodes: { name: "episodes", of: 2, text: short },
};

let drawn = ""; // what the curves show

function show(workersChanged) {
  const now = store.summary;
  document.title = `${now.run} · ${now.version ?? "Shoal"}`;
  at("run").textContent = now.run;
  at("about").textContent = now.environment ? `${now.environment} · ${count(now.parameters)} parameters · ${count(now.population)} members an update · epoch ${now.epoch}` : "";
  const leading = now.role === "leading" || now.role === "over";
  badge("state", leading && now.state ? STATES[now.state] : ROLES[now.role], now.state === "running" ? "good" : "");
  notice("quiet", now.follows ? `This host follows the run: version ${count(now.follows.version)} of ${count(now.follows.goal)}. It leads once the other is gone.` : now.quiet && `Waiting: ${now.quiet}`);
  notice("busy", now.busy && `Busy: ${now.busy}`);
  showFigures(now);
  const told = JSON.stringify([now.instance, store.next.members, store.next.centres, now.target]);
  if (told !== drawn) showCurves(now);
  drawn = told;
  if (workersChanged) {
    const rows = [...store.workers.values()];
    pool.show(rows, now.classes ?? {});
    table.show(rows);
  }
  at("pool-count").textContent = `${count(store.workers.size)} worker${store.workers.size === 1 ? "" : "s"}`;
  if (now.batch) showBatch(now.batch);
  if (now.audits) showTrust(now);
  showLists(now);
  film.show(now.film ?? {}, now.instance);
  orders.allow(now.orders);
  at("join").textContent = now.join || "not yet: the host prints it once its broker is there";
}

function badge(id, text, kind) {
  at(id).textContent = text;
  at(id).className = `badge ${kind}`.trim();
}

function notice(id, text) {
  at(id).hidden = !text;
  at(id).textContent = text ? foreign(text) : "";
}

function showFigures(now) {
  const centre = now.centre;
  const target = now.target == null ? "" : ` · target ${worth(now.target)}`;
  const rate = (name, unit) => (store.rate(name) == null ? "" : `${short(store.rate(name))} ${unit}`);
  const told = [
    ["centre return", centre ? worth(centre.mean) : "–", centre ? `${centre.half == null ? "" : `± ${worth(centre.half)} · `}version ${count(centre.version)}, ${count(centre.episodes)} episodes${target}` : `not evaluated yet${target}`],
    ["members' return", worth(now.mean), "mean of the last update"],
    ["version", count(now.version), now.updating ? "an update is being made" : "updates so far"],
    ["workers", count(store.workers.size), workersBy()],
    ["episodes", short(now.episodes), rate("episodes", "episodes/s")],
    ["env steps", short(now.steps), rate("steps", "steps/s")],
    ["bytes an episode", now.episodes ? (now.wire_bytes / now.episodes).toFixed(1) : "–", `${bytes(now.wire_bytes)} in all`],
    ["led for", duration(now.seconds), ""],
  ];
  fill(at("figures"), told, () => told.map(([name, value, more], index) => {
    const box = element("div", "", index ? "" : "first");
    box.append(element("dt", name), element("dd", value), element("dd", more || "\u00a0", "more"));
    return box;
  }));
}

function workersBy() {
  const states = {};
  for (const row of store.workers.values()) states[row[6]] = (states[row[6]] ?? 0) + 1;
  return Object.entries(states).map(([state, many]) => `${many} ${state}`).join(", ");
}

function showCurves(now) {
  const axis = AXES[at("axis").value];
  const place = placing(axis.of);
  const members = store.members.filter((each) => each[axis.of] != null);
  const around = ([, mean, low, high]) => (low == null ? worth(mean) : `${worth(mean)} (${worth(low)} to ${worth(high)})`);
  const series = [
    { name: "members, mean ± deviation", colour: "accent", band: true, points: members.map((each) => [each[axis.of], each[4], ...spread(each[4], each[5])]), text: around },
    { name: "best member", colour: "third", dash: [3, 4], points: members.map((each) => [each[axis.of], each[6]]), text: ([, best]) => worth(best) },
    { name: "centre, 95 % interval", colour: "second", kind: "points", points: store.centres.map((each) => [place(each[0]), each[2], ...spread(each[2], each[3])]).filter((each) => each[0] != null), text: around },
  ];
  returns.show({ xName: axis.name, xText: axis.text, xSteps: axis.steps, yName: "return", yText: short, series, target: now.target });
  fill(at("returns-legend"), series.map((each) => each.name).concat(matchMedia("(prefers-color-scheme: dark)").matches), () => series.map((each) => {
    const entry = element("li");
    const picture = document.createElement("canvas");
    sample(picture, each);
    entry.append(picture, each.name);
    return entry;
  }));
  const speeds = [];
  const stride = Math.max(1, Math.ceil(members.length / 200));
  for (let index = stride; index < members.length; index += stride) {
    const [before, after] = [members[index - stride], members[index]];
    if (after[1] > before[1] && after[2] >= before[2]) speeds.push([after[axis.of], (after[2] - before[2]) / (after[1] - before[1])]);
  }
  throughput.show({
    xName: axis.name, xText: axis.text, xSteps: axis.steps, yName: "episodes/s", yText: short, fromZero: true,
    series: [{ name: "episodes/s", colour: "accent", points: speeds, text: ([, value]) => short(value) }],
  });
}

/** Where a version lies on an axis. */
function placing(field) {
  if (field === 0) return (version) => version;
  const places = store.members;
  return (version) => {
    let [low, high] = [0, places.length - 1];
    if (version === 0) return 0;
    if (high < 0 || version < places[0][0]) return null;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (places[middle][0] <= version) low = middle;
      else high = middle - 1;
    }
    return places[low][field];
  };
}

const spread = (mean, half) => (mean == null || half == null ? [null, null] : [mean - half, mean + half]);

function showBatch(batch) {
  at("batch-index").textContent = `for version ${count(batch.index + 1)}`;
  const parts = [["settled", batch.settled], ["leased", batch.leased], ["free", batch.free]];
  at("batch-bar").setAttribute("aria-label", parts.map(([name, many]) => `${many} ${name}`).join(", "));
  fill(at("batch-bar"), [parts, batch.directions], () => parts.map(([name, many]) => {
    const part = element("span", "", `part-${name}`);
    part.style.width = `${(100 * many) / Math.max(1, batch.directions)}%`;
    return part;
  }));
  const rows = [...parts, ["of directions", batch.directions], ["begun of the next batch", batch.early], ["dropped, as they fail", batch.dropped]];
  fill(at("batch-rows"), rows, () => rows.flatMap(([name, many], index) => {
    const term = element("dt");
    if (index < 3) term.append(element("i", "", `part-${name}`));
    term.append(name);
    return [term, element("dd", count(many))];
  }));
}

function showTrust(now) {
  const { audits, outcomes } = now;
  const rows = [
    ["directions audited", audits.share ? `${count(audits.audited)} (${percent(audits.share)} of each worker's)` : "none: everybody is believed"],
    ["quarantined or banned", count(audits.suspected)],
    ...["accepted", "late", "duplicate", "refused"].map((name) => [`results ${name}`, count(outcomes[name] ?? 0)]),
    ["bytes on the wire", bytes(now.wire_bytes)],
  ];
  fill(at("audits"), rows, () => rows.flatMap(([name, value]) => [element("dt", name), element("dd", value)]));
  fill(at("suspects"), audits.suspects, () => audits.suspects.map(([who, standing, why, used]) => {
    const entry = element("li");
    const said = element("span");
    said.append(theirs(who, "mono"), ` is ${standing}: `, theirs(why), used ? `; ${used}` : "");
    entry.append(said);
    return entry;
  }));
}

function showLists(now) {
  const unable = now.unable ?? [];
  const lacking = unable.reduce((sum, [, many]) => sum + many, 0);
  at("unable-count").textContent = lacking ? `${count(lacking)} worker${lacking === 1 ? "" : "s"}` : "";
  fill(at("unable"), unable, () => (unable.length ? unable.map(([why, many]) => pair(theirs(why), count(many))) : [element("li", "Every worker that came can.", "quiet-text")]));
  const work = now.contributions ?? [];
  const total = work.reduce((sum, each) => sum + each[2], 0);
  at("work-count").textContent = now.contributors ? `${count(now.contributors)} volunteer${now.contributors === 1 ? "" : "s"}, since this host leads` : "";
  fill(at("work"), work, () => (work.length ? work.map(([who, name, members]) => {
    const label = element("span");
    label.append(theirs(name || "private"), element("span", ` ${foreign(who)}`, "quiet-text mono"));
    return pair(label, `${short(members)} members, ${percent(members / total)}`);
  }) : [element("li", "Nothing was used yet.", "quiet-text")]));
  fill(at("updates"), store.next.updates ?? 0, () => store.updates.toReversed().map((each) => {
    const row = element("tr");
    const cells = [[count(each.version)], [count(each.members)], [count(each.late), "roomy"], [count(each.dropped), "roomy"], [worth(each.mean)], [each.hash, "roomy mono"], [duration(each.took)]];
    row.append(...cells.map(([text, kind]) => element("td", text, kind)));
    return row;
  }));
  fill(at("events"), store.next.events ?? 0, () => store.events.toReversed().map(([moment, line]) => {
    const entry = element("li");
    const said = element("span");
    said.append(theirs(line));
    entry.append(element("span", clock(moment)), said);
    return entry;
  }));
}

function pair(first, second) {
  const entry = element("li");
  const said = element("span");
  said.append(first);
  entry.append(said, element("span", second));
  return entry;
}

function showDetails(each) {
  const place = at("details");
  place.hidden = !each;
  if (!each) return;
  fill(place, [each.row, at("orders").hidden], () => {
    const first = element("p");
    first.append(theirs(called(each)), ` · ${foreign(each.worker)}/${foreign(each.session)} · `, theirs(each.device || "private"), ` · class ${each.numeric || "none"}`);
    const second = element("p", `${each.state}, ${each.standing}; tasks held: ${count(each.tasks)}, results: ${count(each.results)}, ${short(each.speed)} steps/s, ${percent(each.share)} of the pool`);
    const buttons = element("p", "", "controls");
    buttons.append(...orders.buttons(each));
    const trouble = each.trouble ? [theirs(`Last trouble: ${each.trouble}`)] : [];
    return [first, second, ...trouble, buttons];
  });
}

function link(live, heard) {
  const since = heard === null ? null : heard / 1000;
  badge("link", live ? "● live" : "○ no word", live ? "good" : "bad");
  at("stale").hidden = live || heard === null;
  if (!live && heard !== null) at("stale").textContent = `No word from the host since ${clock(since)} (${duration(Math.round((Date.now() - heard) / 1000))}): this is how it stood then. Trying again.`;
}

at("axis").addEventListener("change", () => store.summary && showCurves(store.summary));
at("copy").addEventListener("click", async () => {
  const line = at("join");
  try {
    await navigator.clipboard.writeText(line.textContent);
    at("copy").textContent = "Copied";
    setTimeout(() => (at("copy").textContent = "Copy"), 2000);
  } catch {
    getSelection().selectAllChildren(line);
  }
});
new Stream((told) => show(store.take(told)), link);
