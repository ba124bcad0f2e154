"use strict";

// Sends queries to PostgreSQL by postgres.js, and prints what they took as a line of JSON:
//
//   postgresql_queries.js URL OPERATION COUNT QUERY_OF_ROWS
const postgres = require("postgres");
const measure = require("./measure");

const TASKS = 100;
const POOL = 10;

function check(right, value) {
  if (!right) throw new Error(`a wrong answer: ${JSON.stringify(value)}`);
}

async function oneAfterAnother(one, count) {
  for (let number = 1; number <= count; number++) await one(number);
}

async function main(url, operation, count, queryOfRows) {
  const sql = postgres(url, { max: operation === "pool" ? POOL : 1 });
  const operations = {
    kept: [async (number) => {
      const found = await sql`select 1 as a, ${number}::int as b`;
      check(found[0].b === number, found);
    }, 1],
    rows: [async () => {
      const found = await sql.unsafe(queryOfRows, [], { prepare: true });
      check(found.length === 1000 && found[999].id === 1000 && found[0].at instanceof Date, [found.length, found[0]]);
    }, 1],
    pool: [async () => {
      const found = await Promise.all(Array.from({ length: TASKS }, (_, number) => sql`select ${number}::int as b`));
      found.forEach((rows, number) => check(rows[0].b === number, rows));
    }, TASKS],
  };
  const [one, queries] = operations[operation];
  const turns = Math.floor(Number(count) / queries);
  await oneAfterAnother(one, turns); // V8 compiles what has run often
  await measure(async () => {
    await oneAfterAnother(one, turns);
    return { operations: turns * queries };
  });
  await sql.end();
}

main(...process.argv.slice(2));
