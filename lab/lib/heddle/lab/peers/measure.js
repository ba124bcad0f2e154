"use strict";

// Awaits work(), which returns figures of its own, and prints them and what it took as a line of JSON: the clock's
// time, and the processor's for this process.
module.exports = async function measure(work) {
  const before = process.resourceUsage();
  const start = performance.now();
  const figures = await work();
  const wall = performance.now() - start;
  const after = process.resourceUsage();
  console.log(JSON.stringify({
    wall: wall / 1e3, user: (after.userCPUTime - before.userCPUTime) / 1e6,
    system: (after.systemCPUTime - before.systemCPUTime) / 1e6, peak_rss_kib: after.maxRSS, ...figures,
  }));
};
