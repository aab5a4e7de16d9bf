// The box beside the maps that shows what is under the pointer. A view is a function that makes its contents.

class Panel {
  constructor(model, box) {
    this.model = model;
    this.box = box;
    this.earlier = [];
    this.beside = matchMedia("(min-width: 62.01rem)");
    this.close();
    box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.origin?.focus();
    });
  }

  show(view) {
    if (view === this.shown) return;
    this.shown = view;
    this.box.replaceChildren(...view());
    this.box.classList.toggle("open", view !== this.hint);
    this.box.scrollTop = 0;
  }

  // Only beside the maps: above them it would hide what the pointer is on.
  preview(view) {
    if (this.beside.matches) this.show(view);
  }

  restore() { this.show(this.pinned); }

  pin(view, origin) {
    [this.pinned, this.origin, this.earlier] = [view, origin, []];
    this.show(view);
  }

  // A sample that was clicked; what was here before can come back.
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

  close() {
    const maps = this.model.count ? "Point at a block or a spot to see who is matched there, click to keep it. " : "";
    this.hint = () => [element("p", "hint", `${maps}Click a sample to see it.`)];
    this.origin?.focus({ preventScroll: true });
    this.pin(this.hint, null);
  }

  enter() {
    this.box.querySelector("h3")?.focus({ preventScroll: true });
  }

  top(...children) {
    const heading = element("h3", "", ...children);
    heading.tabIndex = -1;
    const back = this.earlier.length && this.shown === this.pinned ? button("", () => this.back(), "Back") : null;
    const close = button("close", () => this.close(), "Close");
    return element("div", "top", heading, element("div", "controls", back, close));
  }

  between(source, target) {
    return this.top(element("bdi", "source", upright(source)), " → ", element("bdi", "target", upright(target)));
  }

  block(block) {
    const { model } = this;
    const [row, column] = model.groupsOf(block);
    return () => {
      const top = this.between(model.source.groups[row], model.target.groups[column]);
      const pairs = model.ofBlock.get(block) || [];
      const mass = model.blocks.mass[block], count = model.blocks.count[block];
      if (!pairs.length) {
        const what = mass > 0 ? `Only traces of mass move from here to there, ${amount(mass)} together. ` : "Nothing moves from here to there. ";
        const why = `${model.aboutGroup("source", row)}; ${model.aboutGroup("target", column)}.`;
        return [top, element("p", "finding", what, why)];
      }
      const strongest = count > pairs.length ? ` The ${pairs.length} strongest:` : "";
      const text = `Mass ${amount(mass)}, ${percent(mass / model.mass)} of all that moved, in ${many(count, "pair")}.${strongest}`;
      return [top, element("p", "finding", text), ...listed(pairs, (pair) => pairCard(model, this, pair), 8)];
    };
  }

  cell(place) {
    const { model } = this;
    return () => {
      const [pair] = model.ofCell.get(model.map.cells[place]);
      const count = model.map.count[place], mass = amount(model.map.mass[place]);
      const text = count === 1 ? "One pair." : `${many(count, "pair")} with mass ${mass} share this spot. The strongest:`;
      const { source, target } = model.pairs;
      const top = this.between(model.source.names[source[pair]], model.target.names[target[pair]]);
      return [top, element("p", "finding", text), element("ol", "cards large", pairCard(model, this, pair))];
    };
  }

  sample(side, sample) {
    const { model } = this, own = model[side];
    return () => {
      const top = this.top(side === "source" ? "Source " : "Target ", element("bdi", side, upright(own.names[sample])));
      const image = own.images?.[sample] ? thumbnail(model, side, sample) : null;
      const portrait = element("div", "portrait", image, facts(this.sampleFacts(side, sample)));
      if (own.images && !image) portrait.append(element("p", "hint", "The page has no room for this image."));
      const values = own.values ? facts(own.columns.map((column, k) => [column, amount(own.values[sample][k])])) : "";
      return [top, portrait, values, ...this.partners(side, sample)];
    };
  }

  sampleFacts(side, sample) {
    const { model } = this, own = model[side];
    const weight = own.weights[sample], moved = own.moved[sample], left = weight - moved;
    const named = (list) => (list && list[sample] >= 0 ? model.classes[list[sample]] : null);
    const share = weight > 0 ? ` (${percent(moved / weight)})` : "";
    return [
      ["class", named(own.class)],
      ["predicted class", named(own.predicted)],
      ["class by the plan", side === "target" ? named(model.plan) : null],
      ["weight", amount(weight)],
      [side === "source" ? "sent" : "received", moved > ROUNDING * weight ? `${amount(moved)}${share}` : "nothing: left alone"],
      ["left over", moved > ROUNDING * weight && left > 1e-5 * weight ? amount(left) : null], // the page knows six digits
    ];
  }

  partners(side, sample) {
    const { model } = this, other = side === "source" ? "target" : "source";
    const pairs = model.ofSample[side].get(sample) || [];
    if (!pairs.length) return [];
    const count = model[side].partners[sample];
    const strongest = count > pairs.length ? `; the ${pairs.length} strongest` : "";
    const text = `${side === "source" ? "Sends to" : "Receives from"} ${many(count, other)}${strongest}:`;
    const card = (pair) => sampleCard(model, this, other, model.pairs[other][pair], `mass ${amount(model.pairs.mass[pair])}`);
    return [element("p", "finding", text), ...listed(pairs, card, pairs.length)];
  }
}
