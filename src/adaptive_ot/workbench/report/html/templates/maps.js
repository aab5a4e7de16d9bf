// Two maps of a plan. The panel previews what is under the pointer, and keeps what has the focus.

const NUMBERS_UP_TO = 12; // groups: beyond, the numbers in the blocks would not fit
const NAMES_UP_TO = 40;
const MISSING = "∅"; // beside the names of classes that a side does not have
const STRONG = 64; // percent of shade: up to here one ink can be read, beyond it the other, on light and dark screens
const REACH = 8; // pixels around the pointer in which a spot counts as meant
const LARGEST_DOT = 6; // of 800 pixels: a lone cell is drawn at least so large, one of many smaller

// Enter goes to the panel; keys for which `next` knows a place go there.
function onKeys(box, panel, next, go) {
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter") panel.enter();
    const place = next(event.key);
    if (place < 0) return;
    event.preventDefault();
    go(place);
  });
}

// Arrow keys, Home and End among the blocks of a table; -1 for other keys.
function stepAmongBlocks(key, block, blocks, columns) {
  const first = block - (block % columns), last = first + columns - 1;
  switch (key) {
    case "ArrowUp": return block < columns ? block : block - columns;
    case "ArrowDown": return block + columns < blocks ? block + columns : block;
    case "ArrowLeft": return Math.max(first, block - 1);
    case "ArrowRight": return Math.min(last, block + 1);
    case "Home": return first;
    case "End": return last;
    default: return -1;
  }
}

function groupHeader(model, side, group) {
  const own = model[side];
  const name = own.groups[group] || "(no name)", missing = !own.sizes[group];
  const mark = missing ? element("span", "missing", MISSING) : null;
  const header = element("th", "", element("span", "head", element("span", "name", name), mark));
  header.setAttribute("scope", side === "source" ? "row" : "col");
  header.setAttribute("aria-label", missing ? `${isolated(name)}, no ${side}s` : isolated(name));
  header.title = `${isolated(name)}: ${model.aboutGroup(side, group)}`;
  return header;
}

function totals(model, side, group) {
  const cell = element("td", "total", model.groupShare(side, group));
  cell.title = model.aboutGroup(side, group);
  return cell;
}

function blockTable(model, panel, table) {
  const rows = model.source.groups, columns = model.target.groups;
  const few = Math.max(rows.length, columns.length) <= NUMBERS_UP_TO;
  const head = columns.map((_, column) => groupHeader(model, "target", column));
  const lines = rows.map((_, row) => {
    const cells = columns.map((_, column) => blockCell(model, row * columns.length + column, few));
    return element("tr", "", groupHeader(model, "source", row), ...cells, totals(model, "source", row));
  });
  const foot = columns.map((_, column) => totals(model, "target", column));
  table.append(
    element("thead", "", element("tr", "", element("td", "corner"), ...head, element("th", "total", "moved"))),
    element("tbody", "", ...lines),
    element("tfoot", "", element("tr", "", element("th", "total", "moved"), ...foot, element("td", "total"))),
  );
  table.classList.toggle("dense", !few);
  moveAmongBlocks(model, panel, table);
}

function blockCell(model, block, numbered) {
  const mass = model.blocks.mass[block];
  const share = mass / model.mass, relative = mass / model.blocks.mass[model.heaviestBlock];
  const cell = element("td", "block", numbered && share >= 0.0005 ? (100 * share).toFixed(share < 0.0995 ? 1 : 0) : "");
  cell.setAttribute("role", "gridcell");
  cell.setAttribute("aria-label", model.aboutBlock(block));
  cell.tabIndex = -1;
  cell.dataset.block = block;
  const shade = Math.round((model.blocks.count[block] ? 6 : 0) + 94 * relative); // traces are as good as nothing
  cell.style.setProperty("--share", `${shade}%`);
  cell.classList.toggle("strong", shade > STRONG);
  cell.classList.toggle("same", model.sameClass(block));
  return cell;
}

function moveAmongBlocks(model, panel, table) {
  const cells = [...table.querySelectorAll(".block")];
  let current = model.heaviestBlock;
  const choose = (block) => {
    for (const [k, chosen] of [[current, false], [block, true]]) {
      cells[k].tabIndex = chosen ? 0 : -1;
      cells[k].setAttribute("aria-selected", chosen);
    }
    current = block;
  };
  choose(current);
  const at = (event, act) => {
    const cell = event.target.closest(".block");
    if (cell) act(cell, Number(cell.dataset.block));
  };
  table.addEventListener("focusin", (event) => at(event, (cell, block) => {
    choose(block);
    panel.pin(panel.block(block), cell);
  }));
  table.addEventListener("click", (event) => at(event, (cell) => cell.focus()));
  table.addEventListener("mouseover", (event) => at(event, (_, block) => panel.preview(panel.block(block))));
  table.addEventListener("mouseleave", () => panel.restore());
  const next = (key) => stepAmongBlocks(key, current, cells.length, model.target.groups.length);
  onKeys(table, panel, next, (block) => cells[block].focus());
}

// All samples, in the order of their groups. One blue on any ground: mass is how much of it there is, from none at all.
function drawSamples(model, canvas) {
  const context = canvas.getContext("2d");
  const { height, width, cells, mass } = model.map;
  const tall = canvas.height / height, wide = canvas.width / width;
  const most = mass.reduce((a, b) => Math.max(a, b), 0);
  const order = mass.map((_, k) => k).sort((a, b) => mass[a] - mass[b]); // the heaviest on top
  const dot = Math.min(LARGEST_DOT, canvas.width / 2 / Math.sqrt(cells.length));
  const h = Math.max(dot, tall), w = Math.max(dot, wide);
  context.fillStyle = "#2f86cf";
  for (const k of order) {
    const row = Math.floor(cells[k] / width), column = cells[k] % width;
    context.globalAlpha = Math.sqrt(mass[k] / most);
    context.fillRect((column + 0.5) * wide - w / 2, (row + 0.5) * tall - h / 2, w, h);
  }
  context.globalAlpha = Math.min(0.45, 8 / Math.max(model.source.groups.length, model.target.groups.length));
  context.fillStyle = "#8c8c8c";
  for (const at of borders(model.target)) context.fillRect(at * canvas.width - 0.5, 0, 1, canvas.height);
  for (const at of borders(model.source)) context.fillRect(0, at * canvas.height - 0.5, canvas.width, 1);
}

function borders(side) {
  const ends = [];
  side.sizes.reduce((sum, size) => (ends.push((sum + size) / side.names.length), sum + size), 0);
  return ends.slice(0, -1);
}

function nameGroups(side, box) {
  if (side.groups.length > NAMES_UP_TO) return;
  side.groups.forEach((group, k) => {
    const name = element("span", "", element("span", "", group));
    name.style.flexGrow = side.sizes[k];
    if (side.sizes[k]) box.append(name);
  });
}

// The place of the cell nearest to (x, y), measured in cells, less than (reachX, reachY) away; -1 if there is none.
function nearest(map, x, y, reachX, reachY) {
  let best = -1, least = 1;
  map.cells.forEach((cell, place) => {
    const right = Math.max(0, Math.abs((cell % map.width) + 0.5 - x) - 0.5) / reachX;
    const down = Math.max(0, Math.abs(Math.floor(cell / map.width) + 0.5 - y) - 0.5) / reachY;
    const away = Math.hypot(right, down);
    if (away < least) [best, least] = [place, away];
  });
  return best;
}

// Left and right go through all cells that carry mass, up and down to the nearest of the next row that has one.
function stepAmongSpots(map, key, at) {
  const last = map.cells.length - 1, start = map.cells[at] - (map.cells[at] % map.width);
  const beside = (place) => {
    if (place < 0) return at;
    const row = Math.floor(map.cells[place] / map.width);
    return nearest(map, (map.cells[at] % map.width) + 0.5, row + 0.5, map.width + 1, 0.5);
  };
  switch (key) {
    case "ArrowLeft": return Math.max(0, at - 1);
    case "ArrowRight": return Math.min(last, at + 1);
    case "ArrowUp": return beside(map.cells.findLastIndex((cell) => cell < start));
    case "ArrowDown": return beside(map.cells.findIndex((cell) => cell >= start + map.width));
    case "Home": return 0;
    case "End": return last;
    default: return -1;
  }
}

function sampleMap(model, panel, box) {
  const [sheet, cursor, announced] = [".sheet", ".cursor", ".announced"].map((name) => box.querySelector(name));
  const { map } = model;
  let current = 0;
  drawSamples(model, box.querySelector("canvas"));
  nameGroups(model.target, box.querySelector(".targets"));
  nameGroups(model.source, box.querySelector(".sources"));
  const mark = (place) => {
    cursor.hidden = place < 0;
    if (place < 0) return;
    cursor.style.left = `${100 * (map.cells[place] % map.width + 0.5) / map.width}%`;
    cursor.style.top = `${100 * (Math.floor(map.cells[place] / map.width) + 0.5) / map.height}%`;
  };
  const placeAt = (event) => {
    const { left, top, width, height } = sheet.getBoundingClientRect();
    const wide = width / map.width, tall = height / map.height;
    return nearest(map, (event.clientX - left) / wide, (event.clientY - top) / tall, REACH / wide, REACH / tall);
  };
  const choose = (place) => {
    current = place;
    mark(place);
    announced.textContent = model.aboutPair(model.ofCell.get(map.cells[place])[0]);
    panel.pin(panel.cell(place), sheet);
  };
  sheet.addEventListener("mousemove", (event) => {
    const place = placeAt(event);
    mark(place);
    if (place < 0) panel.restore(); else panel.preview(panel.cell(place));
  });
  sheet.addEventListener("mouseleave", () => { mark(sheet === document.activeElement ? current : -1); panel.restore(); });
  sheet.addEventListener("click", (event) => { if (placeAt(event) >= 0) choose(placeAt(event)); });
  sheet.addEventListener("focus", () => { if (sheet.matches(":focus-visible")) choose(current); });
  sheet.addEventListener("blur", () => mark(-1));
  onKeys(sheet, panel, (key) => stepAmongSpots(map, key, current), choose);
}
