// Samples and pairs as little cards. A click on a sample shows it in the panel.

const MORE = 48;
const VALUES = 4;

function thumbnail(model, side, sample) {
  const uri = model[side].images?.[sample];
  if (!uri) return element("span", `dot ${side}`);
  const image = element("img", "");
  image.alt = "";
  image.addEventListener("load", () => image.classList.toggle("coarse", image.naturalWidth < 64));
  image.src = uri;
  return image;
}

// The first values of a sample, and how many there are.
function valueRow(model, side, sample) {
  const { values, columns, width } = model[side];
  if (!values) return null;
  const cells = columns.slice(0, VALUES).flatMap((column, k) => [column, amount(values[sample][k])]);
  const some = width > VALUES ? element("span", "some", `${VALUES} of ${many(width, "value")}`) : null;
  return element("span", "row", ...cells.map((cell) => element("span", "", cell)), some);
}

function sampleButton(model, panel, side, sample, ...notes) {
  const name = model[side].names[sample];
  const lines = [model.classOf(side, sample), ...notes].filter(Boolean).map((note) => element("span", "line", note));
  const text = element("span", "text", element("span", "name", name.split("/").pop()), ...lines, valueRow(model, side, sample));
  const made = button(`sample ${side}`, () => panel.open(panel.sample(side, sample), made), thumbnail(model, side, sample), text);
  made.title = name;
  made.dataset.sample = sample;
  return made;
}

function pairCard(model, panel, pair) {
  const [source, target] = ["source", "target"].map((side) => sampleButton(model, panel, side, model.pairs[side][pair]));
  const mass = element("span", "mass", element("span", "arrow", "→"), amount(model.pairs.mass[pair]));
  return element("li", "pair", source, mass, target);
}

function sampleCard(model, panel, side, sample, ...notes) {
  return element("li", "", sampleButton(model, panel, side, sample, ...notes));
}

function leftNote({ weights, moved }, sample) {
  const weight = weights[sample], left = weight - moved[sample];
  return moved[sample] <= ROUNDING * weight ? "left alone" : `${percent(left / weight)} of its mass left`;
}

function disagreementNotes(model, sample) {
  const plan = model.plan[sample], predicted = model.target.predicted[sample], truth = model.target.class?.[sample];
  const notes = [`plan: ${isolated(model.classes[plan])}`, `prediction: ${isolated(model.classes[predicted])}`];
  if (truth === undefined) return notes;
  const right = truth === plan ? "the plan is" : truth === predicted ? "the prediction is" : "neither is";
  return [...notes, `${right} right`];
}

// A list that grows when asked to.
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
  const rows = entries.filter(([, value]) => value !== null);
  return element("dl", "", ...rows.map(([name, value]) => element("div", "", element("dt", "", name), element("dd", "", value))));
}
