// Looking at a match pair by pair.

const FIRST = 12, MORE = 48;
const PARTNERS = 5, PAIRS_OF_BLOCK = 24; // as many as the page knows of every sample and every block
const OTHER = { source: "target", target: "source" };
const ROUNDING = 1e-9;

function amount(number) {
  return String(Number(Number(number).toPrecision(3)));
}

function percent(share) {
  if (!(share > 0)) return "0\u00a0%";
  if (share < 0.001) return "<\u00a00.1\u00a0%";
  return `${Number((100 * share).toFixed(1))}\u00a0%`;
}

function many(count, thing) {
  return `${count.toLocaleString("en")} ${thing}${count === 1 ? "" : "s"}`;
}

// Pairs are sorted by mass: the first ones of a sample, block or cell are its strongest.
class Model {
  constructor(data) {
    Object.assign(this, data);
    this.heaviestBlock = data.blocks.mass.reduce((a, b) => Math.max(a, b), 0);
    this.ofSample = { source: new Map(), target: new Map() };
    this.ofBlock = new Map();
    this.ofCell = new Map();
    const row = this.lines("source", data.map.height), column = this.lines("target", data.map.width);
    data.pairs.mass.forEach((_, pair) => {
      const source = data.pairs.source[pair], target = data.pairs.target[pair];
      const block = data.source.group[source] * data.target.groups.length + data.target.group[target];
      this.add(this.ofSample.source, source, pair, PARTNERS);
      this.add(this.ofSample.target, target, pair, PARTNERS);
      this.add(this.ofBlock, block, pair, PAIRS_OF_BLOCK);
      this.add(this.ofCell, row[source] * data.map.width + column[target], pair, 1);
    });
  }

  add(lists, key, pair, most) {
    const list = lists.get(key);
    if (!list) lists.set(key, [pair]);
    else if (list.length < most) list.push(pair);
  }

  // The row or column of the map of every sample.
  lines(side, cells) {
    const { group, sizes } = this[side];
    const next = [];
    sizes.reduce((sum, size, k) => ((next[k] = sum), sum + size), 0);
    return group.map((own) => Math.floor((next[own]++ * cells) / group.length));
  }

  groupsOf(block) {
    const columns = this.target.groups.length;
    return [Math.floor(block / columns), block % columns];
  }

  sameClass(block) {
    const [row, column] = this.groupsOf(block);
    return row === column && this.source.kind !== "samples" && this.target.kind !== "samples";
  }

  aboutBlock(block) {
    const [row, column] = this.groupsOf(block);
    const ends = `${this.source.groups[row]} to ${this.target.groups[column]}: `;
    if (!this.blocks.count[block]) return `${ends}nothing moves`;
    const mass = this.blocks.mass[block];
    return `${ends}${percent(mass / this.mass)} of the mass, in ${many(this.blocks.count[block], "pair")}`;
  }

  groupMass(side, group) {
    const own = this[side];
    let moved = 0, weight = 0;
    own.group.forEach((of, k) => { if (of === group) { moved += own.moved[k]; weight += own.weights[k]; } });
    return { moved, weight };
  }

  groupShare(side, group) {
    const { moved, weight } = this.groupMass(side, group);
    return weight ? `${Math.round((100 * moved) / weight)}%` : "";
  }

  aboutGroup(side, group) {
    const size = this[side].sizes[group];
    if (!size) return `none in the ${side}`;
    return `${many(size, side)}, ${this.groupShare(side, group)} of their mass moved`;
  }

  className(side, sample) {
    const own = this[side];
    if (own.class) return this.classes[own.class[sample]];
    return own.predicted ? `${this.classes[own.predicted[sample]]} (predicted)` : "";
  }
}

// What a sample looks like, small.
function thumbnail(model, side, sample) {
  const { images, values, columns } = model[side];
  if (images && images[sample]) {
    const image = element("img", "");
    image.alt = "";
    image.addEventListener("load", () => image.classList.toggle("coarse", image.naturalWidth < 64));
    image.src = images[sample];
    return image;
  }
  if (!values) return element("span", `dot ${side}`);
  return element("span", "row", columns.slice(0, 4).map((column, k) => `${column} ${show(values[sample][k])}`).join(" · "));
}

function show(value) {
  return typeof value === "number" ? amount(value) : String(value);
}

function sampleButton(model, panel, side, sample, ...notes) {
  const name = model[side].names[sample];
  const text = element("span", "text", element("span", "name", name), element("span", "class", model.className(side, sample)));
  text.append(...notes);
  const made = button(`sample ${side}`, () => panel.open(panel.sample(side, sample), made), thumbnail(model, side, sample), text);
  made.title = name;
  made.dataset.side = side;
  made.dataset.sample = sample;
  return made;
}

function pairCard(model, panel, pair) {
  const { source, target, mass } = model.pairs;
  const card = element("li", "pair");
  card.dataset.pair = `${source[pair]} ${target[pair]}`;
  card.append(
    sampleButton(model, panel, "source", source[pair]),
    element("span", "arrow", "→"),
    sampleButton(model, panel, "target", target[pair]),
    element("span", "mass", `mass ${amount(mass[pair])}`),
  );
  return card;
}

// As many as are asked for, a handful at first.
function listed(entries, card, first) {
  const list = element("ol", "cards");
  const more = button("more controls", () => grow(MORE));
  let shown = 0;
  const grow = (count) => {
    list.append(...entries.slice(shown, shown + count).map(card));
    shown = Math.min(entries.length, shown + count);
    more.hidden = shown === entries.length;
    more.textContent = `Show more (${(entries.length - shown).toLocaleString("en")} left)`;
  };
  grow(first);
  return [list, more];
}

function facts(entries) {
  const list = element("dl", "");
  for (const [name, value] of entries) if (value !== null && value !== "") list.append(element("div", "", element("dt", "", name), element("dd", "", value)));
  return list;
}

// The place beside the maps that shows what they point at.
class Panel {
  constructor(model, box) {
    this.model = model;
    this.box = box;
    this.pinned = this.hint;
    this.earlier = [];
    this.origin = null;
    box.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.origin) this.origin.focus();
    });
    this.show(this.hint);
  }

  hint() {
    return [element("p", "hint", "Point at a block, a spot or a sample to see who is matched there; click to keep it.")];
  }

  show(view) {
    if (view !== this.shown) this.box.replaceChildren(...view.call(this));
    this.shown = view;
  }

  preview(view) { this.show(view); }
  restore() { this.show(this.pinned); }

  pin(view, origin) {
    this.pinned = view;
    this.origin = origin;
    this.earlier = [];
    this.show(view);
  }

  // A sample somebody clicked: what was here before can come back.
  open(view, origin) {
    if (this.box.contains(origin)) this.earlier.push(this.pinned);
    else [this.origin, this.earlier] = [origin, []];
    this.pinned = view;
    this.show(view);
    this.enter();
  }

  back() {
    this.pinned = this.earlier.pop();
    this.show(this.pinned);
    this.enter();
  }

  enter(event) {
    if (event) event.preventDefault();
    const heading = this.box.querySelector("h3");
    if (heading) heading.focus({ preventScroll: true });
  }

  heading(...children) {
    const heading = element("h3", "", ...children);
    heading.tabIndex = -1;
    return this.earlier.length ? element("div", "top", heading, button("controls back", () => this.back(), "Back")) : heading;
  }

  block(block) {
    const { model } = this;
    const [row, column] = model.groupsOf(block);
    return () => {
      const top = this.heading(element("bdi", "source", model.source.groups[row]), " → ", element("bdi", "target", model.target.groups[column]));
      const pairs = model.ofBlock.get(block) || [];
      const mass = model.blocks.mass[block], count = model.blocks.count[block];
      if (!pairs.length) return [top, element("p", "told", "Nothing moves from here to there: ", `${model.aboutGroup("source", row)}; ${model.aboutGroup("target", column)}.`)];
      const told = `Mass ${amount(mass)}, ${percent(mass / model.mass)} of all that moved, in ${many(count, "pair")}.`;
      const strongest = count > pairs.length ? ` The ${pairs.length} strongest:` : "";
      return [top, element("p", "told", told + strongest), ...listed(pairs, (pair) => pairCard(model, this, pair), 8)];
    };
  }

  cell(place) {
    const { model } = this;
    return () => {
      const [pair] = model.ofCell.get(model.map.cells[place]);
      const count = model.map.count[place];
      const told = count === 1 ? "One pair." : `${many(count, "pair")} with mass ${amount(model.map.mass[place])} share this spot. The strongest:`;
      const source = model.pairs.source[pair], target = model.pairs.target[pair];
      const top = this.heading(element("bdi", "source", model.source.names[source]), " → ", element("bdi", "target", model.target.names[target]));
      return [top, element("p", "told", told), element("ol", "cards large", pairCard(model, this, pair))];
    };
  }

  sample(side, sample) {
    const { model } = this, own = model[side];
    return () => {
      const name = element("bdi", side, own.names[sample]);
      const nodes = [this.heading(side === "source" ? "Source " : "Target ", name)];
      if (own.images) nodes.push(own.images[sample] ? element("p", "portrait", thumbnail(model, side, sample)) : element("p", "hint", "The page has no room for this image."));
      nodes.push(facts(this.sampleFacts(side, sample)));
      if (own.values) nodes.push(facts(own.columns.map((column, k) => [column, show(own.values[sample][k])])));
      return [...nodes, ...this.partners(side, sample)];
    };
  }

  sampleFacts(side, sample) {
    const { model } = this, own = model[side];
    const weight = own.weights[sample], moved = own.moved[sample];
    const named = (list) => (list && list[sample] >= 0 ? model.classes[list[sample]] : null);
    return [
      ["class", named(own.class)],
      ["predicted class", named(own.predicted)],
      ["class by the plan", side === "target" ? named(model.plan) : null],
      ["weight", amount(weight)],
      [side === "source" ? "sent" : "received", moved > 0 ? `${amount(moved)}${weight ? ` (${percent(moved / weight)})` : ""}` : "nothing: left alone"],
      ["left over", moved > 0 && weight - moved > 1e-5 * weight ? amount(weight - moved) : null],
    ];
  }

  partners(side, sample) {
    const { model } = this, other = OTHER[side];
    const pairs = model.ofSample[side].get(sample) || [];
    if (!pairs.length) return [];
    const count = model[side].partners[sample];
    const verb = side === "source" ? "Sends to" : "Receives from";
    const told = `${verb} ${many(count, other)}${count > pairs.length ? `; the ${pairs.length} strongest` : ""}:`;
    const card = (pair) => element("li", "", sampleButton(model, this, other, model.pairs[other][pair], element("span", "mass", `mass ${amount(model.pairs.mass[pair])}`)));
    return [element("p", "told", told), ...listed(pairs, card, PARTNERS)];
  }
}

function leftCard(model, panel, side, sample) {
  const weight = model[side].weights[sample], moved = model[side].moved[sample];
  const told = moved <= ROUNDING * weight ? "left alone" : `${percent((weight - moved) / weight)} left over`;
  return element("li", "", sampleButton(model, panel, side, sample, element("span", "mass", told)));
}

function disagreementCard(model, panel, sample) {
  const name = (list) => model.classes[list[sample]];
  const truth = model.target.class;
  const notes = [`plan: ${name(model.plan)}`, `prediction: ${name(model.target.predicted)}`];
  if (truth) notes.push(truth[sample] === model.plan[sample] ? "the plan is right" : truth[sample] === model.target.predicted[sample] ? "the prediction is right" : "neither is right");
  return element("li", "", sampleButton(model, panel, "target", sample, ...notes.map((note) => element("span", "note", note))));
}

function fillLists(model, panel, section) {
  const pairs = model.pairs.mass.map((_, pair) => pair).slice(0, 500);
  const lists = {
    pairs: [pairs, (pair) => pairCard(model, panel, pair)],
    source: [model.source.left, (sample) => leftCard(model, panel, "source", sample)],
    target: [model.target.left, (sample) => leftCard(model, panel, "target", sample)],
    disagreements: [model.disagreements, (sample) => disagreementCard(model, panel, sample)],
  };
  for (const box of section.querySelectorAll("[data-list]")) box.append(...listed(...lists[box.dataset.list], FIRST));
}

function connectTabs(section) {
  const tabs = [...section.querySelectorAll("[role=tab]")];
  const select = (chosen) => {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", tab === chosen);
      tab.tabIndex = tab === chosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
    }
  };
  tabs.forEach((tab, k) => {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const next = tabs[(k + 1) % tabs.length];
      select(next);
      next.focus();
    });
  });
}

for (const section of document.querySelectorAll(".explorer")) {
  const model = new Model(JSON.parse(section.querySelector('script[type="application/json"]').textContent));
  const box = section.querySelector(".detail");
  if (!box) continue;
  const panel = new Panel(model, box);
  if (model.count) {
    blockTable(model, panel, section.querySelector(".blocks"));
    section.querySelector(".most").textContent = `${percent(model.heaviestBlock / model.mass)} of the mass`;
    sampleMap(model, panel, section.querySelector(".map"));
    connectTabs(section);
  }
  fillLists(model, panel, section);
}
