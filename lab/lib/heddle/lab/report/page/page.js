// Draws the runs in #data as clustered bars and as a table. The view is kept in the URL's fragment, so that a link
// shows the same. What is computed here is only arithmetic on the rounds; the weights of the intervals come from Ruby.
(() => {
  const {runs, resampling} = JSON.parse(document.getElementById("data").textContent);

  // Okabe and Ito's colours, which colour-blind readers can tell apart. Where there are more series, patterns on top of
  // the colours tell them apart.
  const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442", "#999999"];
  const PATTERNS = ["", "M-1 9L9 -1M-1 1L1 -1M7 9L9 7", "M2 2h2v2h-2zM6 6h2v2h-2z", "M-1 -1L9 9M-1 7L1 9M7 -1L9 1",
    "M0 4H8", "M0 4H8M4 0V8"];
  const DARK = [0, 2, 3];

  // ---- The view, and its form in the URL

  const DEFAULTS = {bench: runs[0].bench, metric: "", cluster: "case", values: "figures", reference: "", log: "",
    intervals: "1", dots: "", noise: "1", sort: "", theme: "", runs: ""};
  const HIDDEN = {runs: "without-run", models: "without-model", cases: "without-case"};
  let view;

  function readView() {
    view = viewOfURL(DEFAULTS, HIDDEN);
    if (!runs.some(run => run.bench === view.bench)) view.bench = DEFAULTS.bench;
    // A view that says nothing of runs begins with those that have the first one's cases: the same of two Rubies, say.
    if (!view.hidden.runs.size && !view.runs) hideOtherRuns();
  }

  function hideOtherRuns() {
    const [first, ...others] = benchRuns();
    const cases = JSON.stringify(first.cases);
    view.hidden.runs = new Set(others.filter(run => JSON.stringify(run.cases) !== cases).map(run => run.name));
  }

  // ---- Figures

  const median = values => {
    const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
    return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  };

  // The 95 % interval of the median, as Heddle::Lab::Statistics has it: resampling holds, for a number of values, which
  // two of the sorted ones a sample's median lies between, and how often.
  function interval(values) {
    const sorted = [...values].sort((a, b) => a - b);
    const medians = resampling[sorted.length].map(([low, high, share]) => [(sorted[low] + sorted[high]) / 2, share]);
    medians.sort((a, b) => a[0] - b[0]);
    const quantile = wanted => {
      let sum = 0;
      return (medians.find(([, share]) => (sum += share) >= wanted) || medians[medians.length - 1])[0];
    };
    return [quantile(0.025), quantile(0.975)];
  }

  function spread(points) {
    if (!points.length) return null;
    const values = points.map(point => point.value);
    const [low, high] = interval(values);
    return {median: median(values), low, high, least: Math.min(...values), most: Math.max(...values), points};
  }

  const pointsOf = values => (values || []).map((value, index) => ({round: index + 1, value}))
    .filter(point => point.value !== null);

  const benchRuns = () => runs.filter(run => run.bench === view.bench);
  const shown = kind => name => !view.hidden[kind].has(name);
  const metricsOf = list => unique(list.flatMap(run => run.metrics.map(metric => metric.title)));
  const nameOfRun = run => {
    const name = "Ruby " + run.ruby;
    return benchRuns().filter(other => other.ruby === run.ruby).length > 1 ? run.name : name;
  };

  // A bar for each run, case and implementation that is shown and was asked for.
  function collect() {
    const list = benchRuns().filter(run => shown("runs")(run.name));
    const title = metricsOf(benchRuns()).includes(view.metric) ? view.metric : metricsOf(list)[0];
    const bars = [];
    let metric = null;
    for (const run of list) {
      const at = run.metrics.findIndex(one => one.title === title);
      if (at < 0) continue;
      metric = metric || run.metrics[at];
      run.cases.forEach((oneCase, caseAt) => run.models.forEach((model, modelAt) => {
        if (!shown("cases")(oneCase.name) || !shown("models")(model)) return;
        const bar = barOf(run, at, caseAt, modelAt);
        if (bar) bars.push(bar);
      }));
    }
    return {title, metric, bars, list};
  }

  function barOf(run, at, caseAt, modelAt) {
    const cells = run.values[at][caseAt];
    const remark = [run.extrapolated.some(([c, m]) => c === caseAt && m === modelAt) ? "extrapolated" : null,
      ...run.troubles.filter(([c, m]) => c === caseAt && m === modelAt).map(trouble => trouble[2])]
      .filter(Boolean).join("; ");
    const figures = spread(pointsOf(cells[modelAt]));
    if (!figures && !remark) return null;
    const chosen = run.models.indexOf(view.reference);
    const referenceAt = chosen >= 0 ? chosen : run.references[at][caseAt][modelAt];
    const reference = cells[referenceAt];
    const ratio = figures && spread(figures.points.filter(({round}) => reference?.[round - 1])
      .map(({round, value}) => ({round, value: value / reference[round - 1]})));
    const floor = run.floors[at][caseAt][referenceAt] ?? null;
    const oneCase = run.cases[caseAt], better = oneCase.better || run.metrics[at].better;
    return {run, remark, figures, ratio, floor, model: run.models[modelAt],
      caseName: oneCase.name + (run.metrics[at].by_case && oneCase.unit ? ", " + oneCase.unit : ""),
      referenceMedian: spread(pointsOf(reference))?.median, reference: run.models[referenceAt],
      verdict: verdict(ratio, floor, better, referenceAt === modelAt)};
  }

  function verdict(ratio, floor, better, itself) {
    if (!ratio) return "";
    if (itself) return "reference";
    if ((ratio.low <= 1 && ratio.high >= 1) || Math.abs(ratio.median - 1) <= (floor || 0)) return "within noise";
    if (!better) return "differs";
    return ratio.median > 1 === (better === "higher") ? "better" : "worse";
  }

  // ---- Bars as clusters: which of the three names a cluster has, and which names are left to its bars

  const ways = {
    case: {cluster: bar => bar.caseName, colour: bar => bar.model, pattern: bar => nameOfRun(bar.run)},
    model: {cluster: bar => bar.model, colour: bar => bar.caseName, pattern: bar => nameOfRun(bar.run)},
    run: {cluster: bar => `${nameOfRun(bar.run)}: ${bar.caseName}`, colour: bar => bar.model, pattern: () => ""}
  };

  function clustersOf(bars) {
    const way = ways[view.cluster] || ways.case;
    const colours = unique(bars.map(way.colour)), patterns = unique(bars.map(way.pattern));
    const seriesOf = bar => {
      const colour = colours.indexOf(way.colour(bar)), pattern = patterns.indexOf(way.pattern(bar));
      const name = patterns.length > 1 ? `${way.colour(bar)}, ${way.pattern(bar)}` : way.colour(bar);
      return {name, order: colour * patterns.length + pattern, colour: colour % COLOURS.length,
        pattern: (Math.floor(colour / COLOURS.length) * patterns.length + pattern) % PATTERNS.length};
    };
    const drawn = bars.map(bar => ({...bar, series: seriesOf(bar)}));
    drawn.sort((a, b) => a.series.order - b.series.order);
    const series = [...new Map(drawn.map(bar => [bar.series.name, bar.series])).values()];
    const clusters = unique(bars.map(way.cluster))
      .map(name => ({name, bars: drawn.filter(bar => way.cluster(bar) === name)}));
    return {series, clusters};
  }

  // ---- SVG

  const fillOf = series => series.pattern ? `url(#fill-${series.colour}-${series.pattern})` : COLOURS[series.colour];

  function fills(series) {
    return svg("defs", {}, ...series.filter(one => one.pattern).map(one => svg("pattern",
      {id: `fill-${one.colour}-${one.pattern}`, width: 8, height: 8, patternUnits: "userSpaceOnUse"},
      svg("rect", {width: 8, height: 8, fill: COLOURS[one.colour]}),
      svg("path", {d: PATTERNS[one.pattern], "stroke-width": 1.6, fill: "none",
        stroke: DARK.includes(one.colour) ? "#fff" : "#000"}))));
  }

  // Round numbers from 0, or from the least value that is shown where the scale is logarithmic.
  function scaleOf(values, logarithmic) {
    if (logarithmic) {
      const positive = values.filter(value => value > 0);
      if (!positive.length) return scaleOf([0, 1], false);
      let low = Math.log10(Math.min(...positive)), high = Math.log10(Math.max(...positive));
      low = Math.floor(low * 2 - 0.2) / 2;
      high = Math.max(Math.ceil(high * 2) / 2, low + 0.5);
      const factors = high - low > 3 ? [1] : [1, 2, 5], ticks = [];
      for (let power = Math.floor(low); power <= high; power++) {
        for (const factor of factors) {
          const tick = Number((factor * 10 ** power).toPrecision(1));
          if (Math.log10(tick) >= low && Math.log10(tick) <= high) ticks.push(tick);
        }
      }
      const share = value => Math.min(Math.max((Math.log10(value) - low) / (high - low), 0), 1);
      return {ticks, share: value => value > 0 ? share(value) : 0};
    }
    const most = Math.max(0, ...values), least = Math.min(0, ...values), range = most - least || 1;
    const power = 10 ** Math.floor(Math.log10(range / 5));
    const step = [1, 2, 5, 10].map(factor => factor * power).find(size => range / size <= 8);
    const bottom = Math.floor(least / step + 1e-9), top = Math.max(Math.ceil(most / step - 1e-9), bottom + 1);
    const ticks = [];
    for (let at = bottom; at <= top; at++) ticks.push(Number((at * step).toPrecision(12)));
    return {ticks, share: value => (value / step - bottom) / (top - bottom)};
  }

  // What a bar shows: its figures, or its ratios to the reference.
  const content = bar => view.values === "ratios" ? bar.ratio : bar.figures;

  function bandOf(bar) {
    if (!view.noise || bar.floor === null) return null;
    const middle = view.values === "ratios" ? 1 : bar.referenceMedian;
    return middle ? [middle * (1 - bar.floor), middle * (1 + bar.floor)] : null;
  }

  // Wide screens have upright bars; on narrow ones the bars lie, and each has its name beside it. Both are drawn by the
  // same steps: a place is (across, value), and only `point` knows which of the two is x.
  function drawChart({title, metric}, {series, clusters}) {
    const holder = element("chart"), room = Math.max(holder.clientWidth, 280), upright = room >= 640;
    const drawn = clusters.map(cluster => ({...cluster, bars: cluster.bars.filter(content)}))
      .filter(cluster => cluster.bars.length);
    const bars = drawn.flatMap(cluster => cluster.bars);
    const values = bars.flatMap(bar => {
      const {median, low, high, least, most} = content(bar), band = bandOf(bar) || [];
      return [median, ...(view.intervals ? [low, high] : []), ...(view.dots ? [least, most] : []), ...band];
    });
    if (view.values === "ratios") values.push(1);
    const scale = scaleOf(values, Boolean(view.log));
    const start = scale.share(view.values === "ratios" && view.log ? 1 : 0);

    const right = upright ? 8 : 14, above = upright ? 46 : 26, gap = upright ? 14 : 30;
    const thickness = left => upright
      ? Math.min(Math.max((room - left - right - drawn.length * gap) / Math.max(bars.length, 1), 8), 56) : 20;
    // Labels that are longer than their clusters lean, and the first of them reaches beyond the axis.
    const leaning = upright && drawn.some(({name, bars}) => name.length * 7 > bars.length * thickness(70) + gap);
    const reach = leaning ? drawn.map(cluster => shorten(cluster.name).length * 6.4) : [0];
    const left = upright ? Math.max(70, reach[0] * 0.87 - drawn[0]?.bars.length * thickness(70) / 2 || 0) : 8;
    const thick = thickness(left), below = upright ? 30 + Math.max(...reach) / 2 : 24;
    const across = Math.max(bars.length * thick + drawn.length * gap, upright ? room - left - right : 40);
    const length = upright ? 340 : room - left - right;
    const width = upright ? left + across + right : room;
    const height = upright ? above + length + below : above + across + below;
    const point = (place, share) => upright ? [left + place, above + length * (1 - share)]
      : [left + length * share, above + place];
    const rectangle = (place, size, from, to, attributes) => {
      const [x1, y1] = point(place, from), [x2, y2] = point(place + size, to);
      return svg("rect", {x: Math.min(x1, x2), y: Math.min(y1, y2), width: Math.abs(x2 - x1), height: Math.abs(y2 - y1),
        ...attributes});
    };
    const line = (place1, share1, place2, share2, kind) => {
      const [x1, y1] = point(place1, share1), [x2, y2] = point(place2, share2);
      return svg("line", {x1, y1, x2, y2, class: kind});
    };

    const parts = [fills(series)];
    let labelled = -Infinity;
    for (const tick of scale.ticks) {
      const share = scale.share(tick), [x, y] = point(0, share);
      parts.push(line(0, share, across, share, "grid"));
      if (upright) {
        parts.push(svg("text", {x: x - 6, y: y + 4, "text-anchor": "end", class: "faint"}, tickLabel(tick)));
      } else {
        const text = tickLabel(tick), half = text.length * 3.5, at = Math.min(Math.max(x, left + half), room - half);
        if (at - half < labelled + 8) continue;
        labelled = at + half;
        parts.push(svg("text", {x: at, y: above - 8, "text-anchor": "middle", class: "faint"}, text));
      }
    }
    parts.push(svg("text", {x: 4, y: upright ? 14 : height - 6, class: "faint axis-title"},
      view.values === "ratios" ? "Ratio to the reference" : axisTitle(title, metric)));

    let place = 0, index = 0;
    for (const cluster of drawn) {
      place += upright ? gap / 2 : gap;
      const begin = place;
      if (!upright) parts.push(svg("text", {x: left, y: above + place - 8, "font-weight": "bold"}, cluster.name));
      for (const bar of cluster.bars) {
        parts.push(drawBar(bar, place, thick, index++));
        place += thick;
      }
      if (upright) parts.push(clusterLabel(cluster.name, left + (begin + place) / 2, above + length + 16, leaning));
      place += upright ? gap / 2 : 0;
    }
    parts.push(line(0, start, across, start, "axis"));
    if (view.values === "ratios") parts.push(line(0, scale.share(1), across, scale.share(1), "one"));

    function drawBar(bar, place, thick, index) {
      const {median, low, high, points} = content(bar), share = scale.share(median), middle = place + thick / 2;
      const group = svg("g", {class: "bar", "data-index": index}, svg("title", {}, describe(bar)));
      const band = bandOf(bar);
      if (band) group.append(rectangle(place, thick, ...band.map(scale.share), {class: "noise"}));
      group.append(rectangle(place + thick * 0.06, thick * 0.88, start, share,
        {class: "body", fill: fillOf(bar.series)}));
      if (view.intervals && high > low) {
        const cap = Math.min(thick * 0.25, 6);
        group.append(line(middle, scale.share(low), middle, scale.share(high), "whisker"),
          line(middle - cap, scale.share(low), middle + cap, scale.share(low), "whisker"),
          line(middle - cap, scale.share(high), middle + cap, scale.share(high), "whisker"));
      }
      if (view.dots) {
        for (const {round, value} of points) {
          const aside = thick * 0.6 * ((round - 0.5) / points[points.length - 1].round - 0.5);
          const [cx, cy] = point(middle + aside, scale.share(value));
          group.append(svg("circle", {cx, cy, r: 2.2, class: "round"}));
        }
      }
      const end = Math.max(share, start, view.intervals ? scale.share(high) : 0,
        view.dots ? Math.max(...points.map(one => scale.share(one.value))) : 0);
      const [x, y] = point(middle, end);
      if (upright) {
        group.append(svg("text", {x: x + 4, y: y - 5, transform: `rotate(-90 ${x + 4} ${y - 5})`,
          class: thick < 13 ? "value small" : "value"}, figure(median)));
      } else {
        // beside the bar where there is room, else over its end
        const text = `${bar.series.name} ${figure(median)}`, fits = x + 6 + text.length * 6.4 < room - right;
        group.append(svg("text", {x: fits ? x + 6 : room - right - 2, y: y + 4, class: "value",
          "text-anchor": fits ? "start" : "end"}, text));
      }
      return group;
    }

    const image = svg("svg", {viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label":
      `${title}: ${bars.length} bars in ${drawn.length} clusters`}, ...parts);
    holder.replaceChildren(bars.length ? image : "Nothing to draw: no run that is shown has such figures.");
    element("legend").replaceChildren(...series.map(legendEntry));
    return bars;
  }

  const axisTitle = (title, metric) => title + (metric?.by_case ? " (units: see the cases)" : "");

  const shorten = name => name.length > 34 ? name.slice(0, 33) + "…" : name;

  function clusterLabel(name, x, y, leaning) {
    const text = leaning ? shorten(name) : name;
    const node = svg("text", leaning ? {x, y: y - 4, "text-anchor": "end", transform: `rotate(-30 ${x} ${y - 4})`}
      : {x, y, "text-anchor": "middle"}, text);
    if (text !== name) node.append(svg("title", {}, name));
    return node;
  }

  function legendEntry(series) {
    const item = document.createElement("li");
    const swatch = svg("svg", {width: 16, height: 16, "aria-hidden": "true"}, svg("rect",
      {x: 1, y: 1, width: 14, height: 14, class: "body", fill: fillOf(series)}));
    item.append(swatch, series.name);
    return item;
  }

  function describe(bar) {
    const {figures: f, ratio: r} = bar;
    return [`${bar.model}, ${bar.caseName}, ${nameOfRun(bar.run)}: ${figure(f.median)}`,
      `95 % interval ${figure(f.low)} to ${figure(f.high)}, ${f.points.length} rounds`,
      r && bar.verdict !== "reference" ?
        `${figure(r.median)} times ${bar.reference} (${figure(r.low)} to ${figure(r.high)}), ${bar.verdict}` : null,
      bar.floor === null ? null : `noise floor ±${figure(bar.floor * 100)} %`, bar.remark].filter(Boolean).join("; ");
  }

  // ---- The table

  const COLUMNS = [
    ["Run", bar => nameOfRun(bar.run)], ["Case", bar => bar.caseName], ["Implementation", bar => bar.model],
    ["Median", bar => bar.figures?.median], ["Interval low", bar => bar.figures?.low],
    ["Interval high", bar => bar.figures?.high], ["Least", bar => bar.figures?.least],
    ["Most", bar => bar.figures?.most],
    ["Rounds", bar => bar.figures ? bar.figures.points.length : 0], ["Reference", bar => bar.reference],
    ["Ratio", bar => bar.ratio?.median], ["Ratio low", bar => bar.ratio?.low], ["Ratio high", bar => bar.ratio?.high],
    ["Noise floor, %", bar => bar.floor === null ? null : bar.floor * 100],
    ["Verdict", bar => bar.verdict], ["Remark", bar => bar.remark]
  ].map(([title, value]) => ({title, value}));
  const WORDS = ["Run", "Case", "Implementation", "Reference", "Verdict", "Remark"];
  const textOf = (column, bar) => {
    const value = column.value(bar);
    return WORDS.includes(column.title) ? value || "" : Number.isInteger(value) ? String(value) : figure(value);
  };
  const collator = new Intl.Collator("en", {numeric: true});
  let rows = [];

  function sorted(bars) {
    const down = view.sort.startsWith("-"), column = COLUMNS.find(one => one.title === view.sort.replace(/^-/, ""));
    if (!column) return bars;
    return [...bars].sort((one, other) => {
      const a = column.value(one) ?? "", b = column.value(other) ?? "";
      if (a === "" || b === "") return (a === "") - (b === ""); // what is missing comes last either way
      const order = typeof a === "number" && typeof b === "number" ? a - b : collator.compare(a, b);
      return down ? -order : order;
    });
  }

  function drawTable({title}, bars) {
    rows = sorted(bars);
    const table = element("table"), head = table.tHead.rows[0];
    table.caption.textContent = `${title}: ${rows.length} rows. A heading sorts.`;
    head.replaceChildren(...COLUMNS.map(column => {
      const cell = document.createElement("th"), button = document.createElement("button");
      const up = view.sort === column.title, down = view.sort === "-" + column.title;
      cell.scope = "col";
      if (WORDS.includes(column.title)) cell.className = "word";
      if (up || down) cell.setAttribute("aria-sort", up ? "ascending" : "descending");
      button.type = "button";
      button.textContent = column.title + (up ? " ▲" : down ? " ▼" : "");
      button.dataset.column = column.title;
      cell.append(button);
      return cell;
    }));
    table.tBodies[0].replaceChildren(...rows.map(bar => {
      const row = document.createElement("tr");
      row.append(...COLUMNS.map(column => {
        const cell = document.createElement("td");
        cell.textContent = textOf(column, bar);
        if (WORDS.includes(column.title)) cell.className = "word";
        if (column.title === "Remark" && bar.remark) cell.className = "word remark";
        return cell;
      }));
      return row;
    }));
  }

  const titles = () => COLUMNS.map(column => column.title);

  function asCSV() {
    const quote = text => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    const lines = [titles(), ...rows.map(bar => COLUMNS.map(column => String(column.value(bar) ?? "")))];
    return lines.map(line => line.map(quote).join(",") + "\r\n").join("");
  }

  function asMarkdown() {
    const escape = text => text.replace(/[\\|]/g, "\\$&").replaceAll("\n", " ");
    const lines = [titles(), titles().map(title => WORDS.includes(title) ? ":--" : "--:"), ...rows.map(bar =>
      COLUMNS.map(column => escape(textOf(column, bar))))];
    return lines.map(line => `| ${line.join(" | ")} |\n`).join("");
  }

  async function copy(text, what) {
    try {
      await navigator.clipboard.writeText(text);
      element("copied").textContent = `Copied: ${what}.`;
    } catch {
      const dialog = element("by-hand"), area = dialog.querySelector("textarea");
      area.value = text;
      dialog.showModal();
      area.select();
    }
  }

  // ---- Controls

  function drawControls({title, list}) {
    const benches = unique(runs.map(run => run.bench));
    element("bench").replaceChildren(...benches.map(name => option(name, name, view.bench)));
    element("metric").replaceChildren(...metricsOf(list).map(name => option(name, name, title)));
    element("reference").replaceChildren(option("", "the bench's own", view.reference),
      ...unique(list.flatMap(run => run.models)).map(name => option(name, name, view.reference)));
    for (const id of ["cluster", "values", "theme"]) element(id).value = view[id];
    for (const id of ["log", "intervals", "dots", "noise"]) element(id).checked = Boolean(view[id]);
    ticks("runs", benchRuns().map(run => [run.name, unique([nameOfRun(run), run.name]).join(", ")]), shown("runs"));
    ticks("models", unique(list.flatMap(run => run.models)).map(name => [name, name]), shown("models"));
    const cases = unique(list.flatMap(run => run.cases.map(one => one.name)));
    ticks("cases", cases.map(name => [name, name]), shown("cases"));
  }

  function drawAbout(list) {
    const entries = list.map(run => {
      const details = document.createElement("details"), summary = document.createElement("summary");
      summary.textContent = `${run.title}: ${run.name}, ${run.started}`;
      const doubts = document.createElement("p");
      doubts.textContent = run.doubts.length ? `The doctor's verdict: ${run.doubts.join("; ")}.`
        : "The doctor's verdict: nothing that makes this machine unfit to measure on.";
      if (run.doubts.length) doubts.className = "doubts";
      details.append(summary, doubts, listOf(run.facts));
      details.open = list.length === 1;
      return details;
    });
    element("about").replaceChildren(...entries);
  }

  const noiseNote = (bars, reference) => bars.some(bar => bar.floor !== null)
    ? `Grey band: the noise floor, which is what ${reference} shows against itself. `
    : `There is no noise floor: ${reference} was not measured against itself. `;

  function failureNote(bars) {
    const failed = bars.filter(bar => !bar.figures).length;
    return failed ? `${failed} of ${bars.length} cells failed: the table's remarks say how.` : "";
  }

  let bars = [], chosen = -1;

  function choose(index) {
    element("chart").querySelector(".chosen")?.classList.remove("chosen");
    chosen = index;
    const node = element("chart").querySelector(`[data-index="${index}"]`);
    node?.classList.add("chosen");
    element("readout").textContent = node ? describe(bars[index]) : "";
    return node;
  }

  function draw() {
    performance.mark("draw-begins");
    document.documentElement.dataset.theme = view.theme;
    const found = collect();
    if (!metricsOf(benchRuns()).includes(view.metric)) view.metric = "";
    writeView(view, DEFAULTS, HIDDEN);
    drawControls(found);
    element("chart-title").textContent = unique(found.list.map(run => run.title)).join("; ") || view.bench;
    const reference = view.reference || unique(found.bars.map(bar => bar.reference)).join(", ");
    const logNote = view.log && found.bars.some(bar => content(bar)?.least <= 0)
      ? "Values of 0 and less have no place on a log scale. " : "";
    element("chart-note").textContent =
      `${found.title || "No measure"}${arrow(found.metric?.better)}, medians of the rounds. ` +
      (view.values === "ratios" ? `Ratios to ${reference}, round by round. ` : "") +
      (view.intervals ? "Whiskers: 95 % interval of the median (bootstrap). " : "") +
      (view.dots ? "Dots: rounds. " : "") +
      (view.noise ? noiseNote(found.bars, reference) : "") + logNote + failureNote(found.bars);
    bars = drawChart(found, clustersOf(found.bars));
    choose(-1);
    drawTable(found, found.bars);
    drawAbout(found.list);
    performance.measure("draw", "draw-begins");
  }

  const change = changes => { Object.assign(view, changes); draw(); };

  for (const id of ["metric", "cluster", "values", "reference", "theme"]) {
    element(id).addEventListener("change", event => change({[id]: event.target.value}));
  }
  for (const id of ["log", "intervals", "dots", "noise"]) {
    element(id).addEventListener("change", event => change({[id]: event.target.checked ? "1" : ""}));
  }
  element("bench").addEventListener("change", event => {
    Object.assign(view, {bench: event.target.value, metric: "", reference: "", runs: ""});
    for (const kind in HIDDEN) view.hidden[kind].clear();
    hideOtherRuns();
    draw();
  });
  for (const kind in HIDDEN) listenToTicks(kind, () => view.hidden, () => change(kind === "runs" ? {runs: "1"} : {}));
  element("table").tHead.addEventListener("click", ({target}) => {
    const column = target.dataset.column;
    if (!column) return;
    change({sort: view.sort === column ? "-" + column : column});
    element("table").tHead.querySelector(`[data-column="${column}"]`).focus();
  });
  element("copy-csv").addEventListener("click", () => copy(asCSV(), "the table as CSV"));
  element("copy-markdown").addEventListener("click", () => copy(asMarkdown(), "the table as Markdown"));
  element("copy-link").addEventListener("click", () => copy(location.href, "a link to this view"));

  const placeAt = node => {
    const bar = node.closest?.("[data-index]");
    return bar ? Number(bar.dataset.index) : undefined;
  };
  listenToChoice(element("chart"), {at: placeAt, count: () => bars.length, chosen: () => chosen, choose});
  listenToPage(() => { readView(); draw(); });
  let width = 0;
  new ResizeObserver(() => {
    if (element("chart").clientWidth === width) return;
    width = element("chart").clientWidth;
    draw();
  }).observe(element("chart"));
  readView();
  width = element("chart").clientWidth;
  draw();
})();
