"use strict";

// Makes many requests by undici, so many at once, and prints what they took as a line of JSON:
//
//   http_requests.js URL REQUESTS AT_ONCE kept|fresh [WARM_UP_URL REQUESTS]...
const { Agent, request } = require("undici");
const measure = require("./measure");

async function get(options, url) {
  const { statusCode, body } = await request(url, options);
  const text = await body.text();
  if (statusCode !== 200 || text !== "done") {
    throw new Error(`wrong answer: ${statusCode} ${JSON.stringify(text.slice(0, 60))}`);
  }
}

// The answer to a request is awaited before a worker makes its next one.
async function getAll(options, url, requests, atOnce) {
  const errors = [];
  const worker = async (own) => {
    for (let n = own; n < requests; n += atOnce) {
      await get(options, url).catch((error) => errors.push(String(error)));
    }
  };
  await Promise.all(Array.from({ length: atOnce }, (_, own) => worker(own)));
  return { operations: requests - errors.length, errors: errors.length, first_error: errors[0] ?? null };
}

async function main(url, requests, atOnce, connections, ...warmUps) {
  const agent = new Agent({ connections: Number(atOnce), keepAliveTimeout: 600_000 });
  const options = { dispatcher: agent, reset: connections === "fresh" }; // reset: Connection: close
  for (let n = 0; n < warmUps.length; n += 2) {
    await getAll(options, warmUps[n], Number(warmUps[n + 1]), Number(atOnce));
  }
  await measure(() => getAll(options, url, Number(requests), Number(atOnce)));
  await agent.destroy();
}

main(...process.argv.slice(2));
