// Draws the history in #data: a small chart for each row, the steps with their commits, and a table. The view is kept
// in the URL's fragment, so that a link shows the same. Levels and steps come from Ruby.
(() => {
  const {groups, least} = JSON.parse(element("data").textContent);

  // ---- The view, and its form in the URL

  const DEFAULTS = {group: "0", metric: "", values: "figures", rows: "all", theme: ""};
  const HIDDEN = {models: "without-model", cases: "without-case"};
  let view;

  function readView() {
    view = viewOfURL(DEFAULTS, HIDDEN);
    if (!groups[view.group]) view.group = DEFAULTS.group;
    if (view.values !== "ratios") view.values = DEFAULTS.values;
  }

  const group = () => groups[view.group];
  const linesOf = () => group()[view.values];
  const shown = kind => name => !view.hidden[kind].has(name);
  const metrics = () => unique(linesOf().map(line => line.metric));
  const metric = () => metrics().includes(view.metric) ? view.metric : metrics()[0] || "";
  const remarkable = line => line.steps.length > 0 || line.drift !== undefined;

  function rowsShown() {
    return linesOf().filter(line => line.metric === metric() && shown("models")(line.model) &&
      shown("cases")(line.case) && (view.rows !== "steps" || remarkable(line)));
  }

  // ---- Texts

  const floorText = line => line.floor === undefined ? "no noise floor" : `noise floor ±${figure(line.floor * 100)} %`;
  const times = ratio => "× " + figure(ratio);
  const day = time => time.slice(0, 10);

  function remark(line) {
    if (line.drift !== undefined) return `drifts without a step: ${times(line.drift)}`;
    if (line.steps.length) {
      const labels = group().runs.map(run => run.label);
      return line.steps.map(step => `${times(step.ratio)} at ${labels[step.after]}, ${step.verdict}`).join("; ");
    }
    return line.enough ? "" : `too few runs: steps take ${2 * least}`;
  }

  function describe(line, place) {
    const run = group().runs[place];
    return `${line.model}, ${line.case}, ${run.label} of ${day(run.committed || run.started)}: ` +
      figure(line.figures[place]);
  }

  // ---- Charts

  const WIDTH = 320, HEIGHT = 130, LEFT = 46, RIGHT = 6, TOP = 8, BOTTOM = 20;

  // A quarter of the least figure is shown at least, so that noise stays flat.
  function rangeOf(line) {
    const floor = line.floor || 0;
    const values = [...line.figures.filter(value => value !== null),
      ...line.levels.flatMap(([, , level]) => [level * (1 - floor), level * (1 + floor)])];
    const low = Math.min(...values), high = Math.max(...values), range = Math.abs(low) * 0.25 || 1;
    const spare = Math.max(range - (high - low), (high - low) * 0.1) / 2;
    return [low - spare, high + spare];
  }

  function chart(line) {
    const [low, high] = rangeOf(line), runs = line.figures.length;
    const x = place => LEFT + (WIDTH - LEFT - RIGHT) * (place + 0.5) / runs;
    const y = value => TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low));
    const edge = (WIDTH - LEFT - RIGHT) / runs / 2;
    const parts = [low, (low + high) / 2, high].flatMap(value => [
      svg("line", {x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid"}),
      svg("text", {x: LEFT - 4, y: y(value) + 4, "text-anchor": "end", class: "faint"}, figure(value))]);
    for (const [from, upto, level] of line.levels) {
      const ends = {x1: x(from) - edge, x2: x(upto) + edge};
      if (line.floor !== undefined) {
        const top = y(level * (1 + line.floor)), bottom = y(level * (1 - line.floor));
        parts.push(svg("rect", {x: ends.x1, y: top, width: ends.x2 - ends.x1, height: bottom - top, class: "floor"}));
      }
      parts.push(svg("line", {...ends, y1: y(level), y2: y(level), class: "level"}));
    }
    for (const step of line.steps) {
      const at = (x(step.before) + x(step.after)) / 2;
      parts.push(svg("line", {x1: at, x2: at, y1: TOP, y2: HEIGHT - BOTTOM, class: "step"}));
    }
    line.figures.forEach((value, place) => {
      if (value === null) return;
      parts.push(svg("circle", {cx: x(place), cy: y(value), r: 3, class: "run"},
        svg("title", {}, describe(line, place))));
    });
    const ends = {y: HEIGHT - 5, class: "faint"}, labels = group().runs.map(run => run.label);
    parts.push(svg("text", {...ends, x: LEFT}, labels[0]),
      svg("text", {...ends, x: WIDTH - RIGHT, "text-anchor": "end"}, runs > 1 ? labels[runs - 1] : ""));
    const texts = [`${line.model}, ${line.case}, runs: ${runs}`, remark(line), floorText(line)].filter(Boolean);
    return svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": texts.join("; ")}, ...parts);
  }

  // Every dot of every chart, in their order: what arrow keys and the pointer choose.
  let dots = [], chosen = -1;

  function drawCharts(rows) {
    element("charts").replaceChildren(...rows.map(line => {
      const holder = document.createElement("figure"), caption = document.createElement("figcaption");
      caption.append(`${line.model}, ${line.case}`);
      if (remark(line)) caption.append(`: ${remark(line)}`);
      if (line.steps.some(step => step.verdict === "worse")) caption.className = "worse";
      holder.append(caption, chart(line));
      return holder;
    }));
    if (!rows.length) element("charts").append("Nothing to draw: no row that is shown has such figures.");
    dots = [...element("charts").querySelectorAll(".run")];
    choose(-1);
  }

  function choose(index) {
    dots[chosen]?.classList.remove("chosen");
    chosen = index;
    dots[index]?.classList.add("chosen");
    element("readout").textContent = dots[index]?.textContent || "";
    return dots[index];
  }

  // ---- Steps

  function stepEntry({line, step}) {
    const item = document.createElement("li"), verdict = document.createElement("span");
    verdict.textContent = step.verdict;
    verdict.className = step.verdict;
    item.append(`${line.model}, ${line.case}: ${line.measure} ${figure(step.from)}, then ${figure(step.to)}: ` +
      `${times(step.ratio)}, `, verdict, `; ${floorText(line)}; between ${step.range}. `);
    if (step.url) {
      item.append(Object.assign(document.createElement("a"), {href: step.url, textContent: "What changed"}));
    }
    if (step.commits?.length) {
      const details = document.createElement("details"), summary = document.createElement("summary");
      summary.textContent = `Commits: ${step.commits.length}`;
      details.append(summary, listOf(step.commits));
      item.append(details);
    }
    if (step.changes.length) item.append(listOf(step.changes.map(change => `also changed: ${change}`)));
    return item;
  }

  function drawSteps() {
    const found = linesOf().flatMap(line => line.steps.map(step => ({line, step})));
    found.sort((one, other) => other.step.after - one.step.after);
    const list = document.createElement("ul");
    list.append(...found.map(stepEntry));
    element("steps").replaceChildren(found.length ? list : "No step is larger than the noise.");
  }

  // ---- The table

  function drawTable(rows) {
    const table = element("table"), titles = ["Implementation", "Case", "Remark", "Noise floor, %"];
    table.caption.textContent = `${metric()}; rows: ${rows.length}, runs: ${group().runs.length}`;
    const headings = [...titles, ...group().runs.map(run => `${run.label}, ${day(run.started)}`)];
    table.tHead.rows[0].replaceChildren(...headings.map((title, at) => Object.assign(document.createElement("th"),
      {textContent: title, scope: "col", className: at < 3 ? "word" : ""})));
    table.tBodies[0].replaceChildren(...rows.map(line => {
      const row = document.createElement("tr");
      const texts = [line.model, line.case, remark(line), line.floor === undefined ? "–" : figure(line.floor * 100),
        ...line.figures.map(figure)];
      row.append(...texts.map((text, at) => Object.assign(document.createElement("td"),
        {textContent: text, className: at === 2 && text ? "word remark" : at < 3 ? "word" : ""})));
      return row;
    }));
  }

  // ---- Controls

  function drawControls() {
    element("group").replaceChildren(...groups.map((one, at) => option(String(at), one.title, view.group)));
    element("metric").replaceChildren(...metrics().map(name => option(name, name, metric())));
    for (const id of ["values", "rows", "theme"]) element(id).value = view[id];
    ticks("models", unique(linesOf().map(line => line.model)).map(name => [name, name]), shown("models"));
    ticks("cases", unique(linesOf().map(line => line.case)).map(name => [name, name]), shown("cases"));
  }

  function draw() {
    performance.mark("draw-begins");
    document.documentElement.dataset.theme = view.theme;
    writeView(view, DEFAULTS, HIDDEN);
    const rows = rowsShown();
    drawControls();
    element("chart-title").textContent = group().title;
    element("chart-note").textContent = metric() + arrow(rows[0]?.better) +
      `${view.values === "ratios" ? ", as ratios to the reference" : ""}. Dots: runs, the medians of their rounds; ` +
      "lines: levels; shaded: the noise floor; dashed: steps that are more than noise. The axes do not begin at 0.";
    drawCharts(rows);
    drawSteps();
    drawTable(rows);
    performance.measure("draw", "draw-begins");
  }

  const change = changes => { Object.assign(view, changes); draw(); };

  for (const id of ["metric", "values", "rows", "theme"]) {
    element(id).addEventListener("change", event => change({[id]: event.target.value}));
  }
  element("group").addEventListener("change", event => {
    for (const kind in HIDDEN) view.hidden[kind].clear();
    change({group: event.target.value, metric: ""});
  });
  for (const kind in HIDDEN) listenToTicks(kind, () => view.hidden, draw);
  const placeAt = node => {
    const dot = node.closest?.(".run");
    return dot ? dots.indexOf(dot) : undefined;
  };
  listenToChoice(element("charts"), {at: placeAt, count: () => dots.length, chosen: () => chosen, choose});
  listenToPage(() => { readView(); draw(); });
  readView();
  draw();
})();
