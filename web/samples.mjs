// Type-checks the TypeScript samples in the documentation.

import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL(".", import.meta.url)));

const PAGES = [
  "../docs/clients-web.md",
  "../docs/nesting.md",
  ...["sdk", "react", "vue", "element", "publish"].map((name) => `${name}/README.md`),
];
// In node_modules, so that it is neither linted nor committed. tsconfig.samples.json names it too.
const FOLDER = "node_modules/.samples";

rmSync(FOLDER, { recursive: true, force: true });
mkdirSync(FOLDER, { recursive: true });
for (const [page, path] of PAGES.entries()) {
  const blocks = [...readFileSync(path, "utf8").matchAll(/```(tsx?)\n(.*?)```/gs)];
  if (blocks.length === 0) throw new Error(`${path} has no TypeScript sample`);
  for (const [block, [, language, text]] of blocks.entries()) {
    writeFileSync(join(FOLDER, `page${page}-block${block}.${language}`), text);
  }
}
const { status } = spawnSync("node_modules/.bin/tsc", ["-p", "tsconfig.samples.json"], {
  stdio: "inherit",
});
process.exit(status ?? 1);
