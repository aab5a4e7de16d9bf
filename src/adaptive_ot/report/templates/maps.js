// Two maps of a plan. Both tell `panel` what to show: a preview under the pointer, what has the focus for good.

const NUMBERS_UP_TO = 12; // groups: beyond, the numbers in the blocks would not fit
const NAMES_UP_TO = 40;
const REACH = 8; // pixels around the pointer in which a spot counts as meant
const SMALLEST_SPOT = 4; // of 800

// Arrow keys, Home and End within a grid of so many rows and columns.
function step(key, row, column, rows, columns) {
  switch (key) {
    case "ArrowUp": return [Math.max(0, row - 1), column];
    case "ArrowDown": return [Math.min(rows - 1, row + 1), column];
    case "ArrowLeft": return [row, Math.max(0, column - 1)];
    case "ArrowRight": return [row, Math.min(columns - 1, column + 1)];
    case "Home": return [row, 0];
    case "End": return [row, columns - 1];
    default: return null;
  }
}

function groupHeader(model, side, group, tag) {
  const own = model[side];
  const header = element(tag, own.sizes[group] ? "" : "absent", element("span", "name", own.groups[group] || "(no name)"));
  header.setAttribute("scope", side === "source" ? "row" : "col");
  header.title = `${own.groups[group]}: ${model.aboutGroup(side, group)}`;
  if (!own.sizes[group]) header.append(element("small", "", `not in the ${side}`));
  return header;
}

function blockTable(model, panel, table) {
  const rows = model.source.groups.length, columns = model.target.groups.length;
  const cells = [];
  const head = element("tr", "", element("td", "corner"));
  for (let column = 0; column < columns; column++) head.append(groupHeader(model, "target", column, "th"));
  head.append(element("th", "total", "moved"));
  const body = element("tbody", "");
  for (let row = 0; row < rows; row++) {
    const line = element("tr", "", groupHeader(model, "source", row, "th"));
    for (let column = 0; column < columns; column++) {
      cells.push(blockCell(model, row * columns + column, rows <= NUMBERS_UP_TO && columns <= NUMBERS_UP_TO));
      line.append(cells[cells.length - 1]);
    }
    line.append(element("td", "total", model.groupShare("source", row)));
    body.append(line);
  }
  const foot = element("tr", "", element("th", "total", "moved"));
  for (let column = 0; column < columns; column++) foot.append(element("td", "total", model.groupShare("target", column)));
  foot.append(element("td", "total"));
  table.append(element("thead", "", head), body, element("tfoot", "", foot));
  table.classList.toggle("dense", rows > NUMBERS_UP_TO || columns > NUMBERS_UP_TO);
  moveAmongCells(cells, rows, columns, table, panel, (block) => panel.block(block));
}

function blockCell(model, block, numbered) {
  const share = model.blocks.mass[block] / model.mass;
  const relative = model.blocks.mass[block] / model.heaviestBlock;
  const cell = element("td", "block", numbered && share >= 0.0005 ? (100 * share).toFixed(share < 0.0995 ? 1 : 0) : "");
  cell.setAttribute("role", "gridcell");
  cell.setAttribute("aria-label", model.aboutBlock(block));
  cell.tabIndex = -1;
  cell.dataset.block = block;
  cell.style.setProperty("--share", `${relative > 0 ? 6 + 94 * relative : 0}%`);
  cell.classList.toggle("strong", relative > 0.55);
  cell.classList.toggle("same", model.sameClass(block));
  return cell;
}

function moveAmongCells(cells, rows, columns, table, panel, view) {
  let current = cells.reduce((best, cell, k) => (cell.classList.contains("strong") && best < 0 ? k : best), -1);
  current = Math.max(0, current);
  if (cells.length) cells[current].tabIndex = 0;
  const cellOf = (event) => event.target.closest("td.block");
  table.addEventListener("focusin", (event) => {
    const cell = cellOf(event);
    if (!cell) return;
    cells[current].tabIndex = -1;
    current = Number(cell.dataset.block);
    cell.tabIndex = 0;
    panel.pin(view(current), cell);
  });
  table.addEventListener("click", (event) => { if (cellOf(event)) cellOf(event).focus(); });
  table.addEventListener("mouseover", (event) => { if (cellOf(event)) panel.preview(view(Number(cellOf(event).dataset.block))); });
  table.addEventListener("mouseleave", () => panel.restore());
  table.addEventListener("keydown", (event) => {
    if (event.key === "Enter") return panel.enter(event);
    const next = step(event.key, Math.floor(current / columns), current % columns, rows, columns);
    if (!next) return;
    event.preventDefault();
    cells[next[0] * columns + next[1]].focus();
  });
}

// All samples, in the order of their groups. One blue on any ground: mass is how much of it there is.
function drawSamples(model, canvas) {
  const context = canvas.getContext("2d");
  const { height, width, cells, mass } = model.map;
  const tall = canvas.height / height, wide = canvas.width / width;
  const most = mass.reduce((a, b) => Math.max(a, b), 0);
  const order = mass.map((_, k) => k).sort((a, b) => mass[a] - mass[b]); // the heaviest on top
  const h = Math.max(SMALLEST_SPOT, tall), w = Math.max(SMALLEST_SPOT, wide);
  context.fillStyle = "#2f86cf";
  for (const k of order) {
    const row = Math.floor(cells[k] / width), column = cells[k] % width;
    context.globalAlpha = 0.2 + 0.8 * Math.sqrt(mass[k] / most);
    context.fillRect((column + 0.5) * wide - w / 2, (row + 0.5) * tall - h / 2, w, h);
  }
  context.globalAlpha = 0.45;
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

// The place in `cells` of the first that is not before `cell`.
function firstFrom(cells, cell) {
  let low = 0, high = cells.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (cells[middle] < cell) low = middle + 1; else high = middle;
  }
  return low;
}

// The place of the cell nearest to (x, y), measured in cells, at most (reachX, reachY) away; -1 if there is none.
function nearest(map, x, y, reachX, reachY) {
  let best = -1, least = 1;
  for (let row = Math.max(0, Math.floor(y - reachY)); row <= Math.min(map.height - 1, y + reachY); row++) {
    const from = firstFrom(map.cells, row * map.width + Math.max(0, Math.floor(x - reachX)));
    for (let k = from; k < map.cells.length && map.cells[k] <= row * map.width + Math.min(map.width - 1, x + reachX); k++) {
      const away = Math.hypot(Math.max(0, Math.abs(map.cells[k] % map.width + 0.5 - x) - 0.5) / reachX, Math.max(0, Math.abs(row + 0.5 - y) - 0.5) / reachY);
      if (away < least) [best, least] = [k, away];
    }
  }
  return best;
}

// Left and right go through all cells that carry mass, up and down to the nearest of the next row that has one.
function stepAmongSpots(map, key, at) {
  const last = map.cells.length - 1;
  const row = Math.floor(map.cells[at] / map.width), column = map.cells[at] % map.width;
  switch (key) {
    case "ArrowLeft": return Math.max(0, at - 1);
    case "ArrowRight": return Math.min(last, at + 1);
    case "Home": return 0;
    case "End": return last;
    case "ArrowUp":
    case "ArrowDown": {
      const edge = key === "ArrowUp" ? firstFrom(map.cells, row * map.width) - 1 : firstFrom(map.cells, (row + 1) * map.width);
      if (edge < 0 || edge > last) return at;
      return nearest(map, column + 0.5, Math.floor(map.cells[edge] / map.width) + 0.5, map.width + 1, 0.5);
    }
    default: return -1;
  }
}

function sampleMap(model, panel, box) {
  const sheet = box.querySelector(".sheet"), cursor = box.querySelector(".cursor"), map = model.map;
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
  sheet.addEventListener("keydown", (event) => {
    if (event.key === "Enter") return panel.enter(event);
    const place = stepAmongSpots(map, event.key, current);
    if (place < 0) return;
    event.preventDefault();
    choose(place);
  });
}

