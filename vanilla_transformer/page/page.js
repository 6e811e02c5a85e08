// What lights up on the page: tokens and cells of heat maps, by pointer and by keyboard.
(() => {
  "use strict";
  const chipsOf = (map, side) => map.querySelectorAll(`[data-side="${side}"]`);
  const percentOf = (share) => (share ? `${share}%` : "below 1%");
  const weightsOf = (element) => JSON.parse(element.dataset.weights);
  const textOf = (map, side, index) =>
    map.querySelector(`.vt-chip[data-side="${side}"][data-index="${index}"]`).textContent;

  function clearMap(map) {
    for (const element of map.querySelectorAll("[data-side]")) {
      element.style.removeProperty("--w");
      element.classList.remove("vt-active");
    }
    for (const element of map.querySelectorAll(".vt-on")) element.classList.remove("vt-on");
  }

  // Lights up what belongs to a token: the other side in proportion to the weights.
  function showToken(map, side, index) {
    clearMap(map);
    const weights = weightsOf(map);
    const isTarget = side === "target";
    const shares = isTarget ? weights[index] : weights.map((row) => row[index]);
    const other = isTarget ? "source" : "target";
    for (const element of chipsOf(map, other)) element.style.setProperty("--w", shares[element.dataset.index] / 100);
    for (const element of map.querySelectorAll(`[data-side="${side}"][data-index="${index}"]`)) {
      element.classList.add("vt-active");
    }
    const line = isTarget ? `[data-row="${index}"]` : `[data-column="${index}"]`;
    for (const element of map.querySelectorAll(`td${line}`)) element.classList.add("vt-on");
    const best = shares.map((share, place) => [share, place]).sort((a, b) => b[0] - a[0]);
    const named = best
      .filter(([share]) => share > 0)
      .slice(0, 3)
      .map(([share, place]) => `${textOf(map, other, place)} ${share}%`);
    const verb = isTarget ? "attends to" : "is attended to by";
    map.querySelector(".vt-readout").textContent =
      `${textOf(map, side, index)} ${verb} ${named.join(", ") || "nothing with 1% or more"}`;
  }

  function showCell(map, row, column) {
    clearMap(map);
    const share = weightsOf(map)[row][column];
    for (const [side, index] of [["target", row], ["source", column]]) {
      for (const element of map.querySelectorAll(`[data-side="${side}"][data-index="${index}"]`)) {
        element.classList.add("vt-active");
        element.style.setProperty("--w", share / 100);
      }
    }
    map.querySelector(`td[data-row="${row}"][data-column="${column}"]`).classList.add("vt-on");
    map.querySelector(".vt-readout").textContent =
      `${textOf(map, "target", row)} attends to ${textOf(map, "source", column)}: ${percentOf(share)}`;
  }

  function showHeadCell(figure, row, column) {
    const maps = figure.closest(".vt-heads");
    const rows = JSON.parse(maps.dataset.rows);
    const columns = JSON.parse(maps.dataset.columns);
    const place = {
      row: Math.min(Math.max(row, 0), rows.length - 1),
      column: Math.min(Math.max(column, 0), columns.length - 1),
    };
    figure.dataset.row = place.row;
    figure.dataset.column = place.column;
    for (const element of maps.querySelectorAll(".vt-cursor")) element.setAttribute("visibility", "hidden");
    const cursor = figure.querySelector(".vt-cursor");
    cursor.setAttribute("x", place.column);
    cursor.setAttribute("y", place.row);
    cursor.setAttribute("visibility", "visible");
    maps.querySelector(".vt-readout").textContent =
      `Head ${figure.dataset.head}: ${rows[place.row]} attends to ${columns[place.column]}: ` +
      percentOf(weightsOf(figure)[place.row][place.column]);
  }

  function answerTo(element) {
    const map = element.closest?.(".vt-map");
    if (!map) return;
    const token = element.closest("[data-side]");
    const cell = element.closest("td[data-row]");
    if (token) showToken(map, token.dataset.side, Number(token.dataset.index));
    else if (cell) showCell(map, Number(cell.dataset.row), Number(cell.dataset.column));
  }

  function stepBetweenTokens(event, chip) {
    const chips = [...chip.closest(".vt-row").children];
    const place = chips.indexOf(chip);
    const steps = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: chips.length - 1 };
    const next = chips[steps[event.key]];
    if (!next) return;
    event.preventDefault();
    chip.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  function stepBetweenCells(event, figure) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    showHeadCell(
      figure,
      Number(figure.dataset.row ?? 0) + move[0],
      Number(figure.dataset.column ?? 0) + move[1],
    );
  }

  document.addEventListener("mouseover", (event) => answerTo(event.target));
  document.addEventListener("click", (event) => answerTo(event.target));
  document.addEventListener("focusin", (event) => {
    answerTo(event.target);
    if (event.target.matches?.(".vt-head")) {
      const { row, column } = event.target.dataset;
      showHeadCell(event.target, Number(row ?? 0), Number(column ?? 0));
    }
  });
  document.addEventListener("mousemove", (event) => {
    const drawing = event.target.closest?.(".vt-head svg");
    if (!drawing) return;
    const figure = drawing.closest(".vt-head");
    const box = drawing.getBoundingClientRect();
    const { width, height } = drawing.viewBox.baseVal;
    showHeadCell(
      figure,
      Math.floor(((event.clientY - box.top) / box.height) * height),
      Math.floor(((event.clientX - box.left) / box.width) * width),
    );
  });
  document.addEventListener("keydown", (event) => {
    const chip = event.target.closest?.(".vt-chip");
    const figure = event.target.closest?.(".vt-head");
    if (chip) stepBetweenTokens(event, chip);
    else if (figure) stepBetweenCells(event, figure);
  });
})();
