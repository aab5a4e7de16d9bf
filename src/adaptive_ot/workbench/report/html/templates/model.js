// The data of a match. Pairs are sorted by mass: the first of a sample, block or cell are its strongest.

const ROUNDING = 1e-9;

function amount(number) {
  if (typeof number !== "number") return String(number); // JSON has no infinities
  const size = Math.abs(number);
  return size > 0 && size < 1e-4 ? number.toExponential(2) : String(Number(number.toPrecision(3)));
}

function percent(share) {
  if (!(share > 0)) return "0\u00a0%";
  return share < 0.001 ? "<\u00a00.1\u00a0%" : `${Number((100 * share).toFixed(1))}\u00a0%`;
}

function many(count, thing) {
  return `${count.toLocaleString("en")} ${thing}${count === 1 ? "" : "s"}`;
}

function addUpTo(most, lists, key, entry) {
  const list = lists.get(key);
  if (!list) lists.set(key, [entry]);
  else if (list.length < most) list.push(entry);
}

class Model {
  constructor(data) {
    Object.assign(this, data);
    this.heaviestBlock = data.blocks.mass.indexOf(data.blocks.mass.reduce((a, b) => Math.max(a, b), 0));
    this.groupMass = { source: this.sumGroups(data.source), target: this.sumGroups(data.target) };
    this.ofSample = { source: new Map(), target: new Map() };
    this.ofBlock = new Map();
    this.ofCell = new Map();
    data.pairs.mass.forEach((_, pair) => {
      const source = data.pairs.source[pair], target = data.pairs.target[pair];
      const block = data.source.group[source] * data.target.groups.length + data.target.group[target];
      addUpTo(data.most.partners, this.ofSample.source, source, pair);
      addUpTo(data.most.partners, this.ofSample.target, target, pair);
      addUpTo(data.most.block, this.ofBlock, block, pair);
      addUpTo(1, this.ofCell, data.source.line[source] * data.map.width + data.target.line[target], pair);
    });
  }

  sumGroups({ group, groups, moved, weights }) {
    const sums = groups.map(() => ({ moved: 0, weight: 0 }));
    group.forEach((own, k) => {
      sums[own].moved += moved[k];
      sums[own].weight += weights[k];
    });
    return sums;
  }

  groupsOf(block) {
    const columns = this.target.groups.length;
    return [Math.floor(block / columns), block % columns];
  }

  // Whether a block lies on the diagonal, where equal classes meet.
  sameClass(block) {
    const [row, column] = this.groupsOf(block);
    return row === column && this.source.kind !== "samples" && this.target.kind !== "samples";
  }

  aboutBlock(block) {
    const [row, column] = this.groupsOf(block);
    const ends = `${isolated(this.source.groups[row])} to ${isolated(this.target.groups[column])}: `;
    if (!this.blocks.count[block]) return `${ends}${this.blocks.mass[block] > 0 ? "only traces of mass" : "nothing moves"}`;
    return `${ends}${percent(this.blocks.mass[block] / this.mass)} of the mass, in ${many(this.blocks.count[block], "pair")}`;
  }

  groupShare(side, group) {
    const { moved, weight } = this.groupMass[side][group];
    return weight ? `${Math.round((100 * moved) / weight)}%` : "";
  }

  aboutGroup(side, group) {
    const size = this[side].sizes[group];
    if (!size) return `${isolated(this[side].groups[group])} is missing in the ${side}`;
    return `${this.groupShare(side, group) || "0%"} of the mass of ${many(size, side)} moved`;
  }

  aboutPair(pair) {
    const { source, target, mass } = this.pairs;
    return `${isolated(this.source.names[source[pair]])} to ${isolated(this.target.names[target[pair]])}: mass ${amount(mass[pair])}`;
  }

  // The class of a sample; a bare number would not look like a class.
  classOf(side, sample) {
    const own = this[side];
    if (!own.class) return own.predicted ? `predicted ${isolated(this.classes[own.predicted[sample]])}` : "";
    const name = this.classes[own.class[sample]];
    return /^[0-9]+$/.test(name) ? `class ${name}` : name;
  }
}
