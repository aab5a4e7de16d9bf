// Every explorer of the page: its maps, its panel and its lists.

const FIRST = 12;

function fillLists(model, panel, section) {
  const strongest = [...model.pairs.mass.keys()].slice(0, model.most.all);
  const left = (side) => [model[side].left, (sample) => sampleCard(model, panel, side, sample, leftNote(model[side], sample))];
  const differs = (sample) => sampleCard(model, panel, "target", sample, ...disagreementNotes(model, sample));
  const lists = {
    pairs: [strongest, (pair) => pairCard(model, panel, pair)],
    source: left("source"),
    target: left("target"),
    disagreements: [model.disagreements, differs],
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
  const box = section.querySelector(".detail");
  if (!box) continue; // there are no samples
  const model = new Model(JSON.parse(section.querySelector('script[type="application/json"]').textContent));
  const panel = new Panel(model, box);
  if (model.count) {
    blockTable(model, panel, section.querySelector(".blocks"));
    section.querySelector(".most").textContent = `${percent(model.blocks.mass[model.heaviestBlock] / model.mass)} of the mass`;
    section.querySelector(".absent").hidden = [model.source, model.target].every(({ sizes }) => sizes.every(Boolean));
    sampleMap(model, panel, section.querySelector(".map"));
    connectTabs(section);
    // Beside the maps there is room to begin with an example.
    if (panel.beside.matches) panel.pin(panel.block(model.heaviestBlock), null);
  }
  fillLists(model, panel, section);
}
