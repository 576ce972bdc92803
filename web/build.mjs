// Builds the SDK and the pages into dist, which is committed: `node build.mjs`.
// With --test it bundles and runs the tests instead; with --size it checks the
// size of the SDK.

import { spawnSync } from "node:child_process";
import { copyFileSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

process.chdir(fileURLToPath(new URL(".", import.meta.url)));

const SDK_LIMIT_BYTES = 10 * 1024;

/** Settings of all bundles. tsconfig.json resolves the SDK for the pages. */
const common = {
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  logLevel: "warning",
};

const sdk = { ...common, entryPoints: ["sdk/src/index.ts"] };

/** For pages without a bundler: `<script src="badged.min.js">`, then `new badged.Badged(…)`. */
const forPages = { ...sdk, format: "iife", globalName: "badged", minify: true };

if (process.argv.includes("--test")) process.exit(await test());
if (process.argv.includes("--size")) process.exit(await measure());

rmSync("dist", { recursive: true, force: true });
await buildSDK();
await buildPage("demo");
await buildPage("admin");
copyFileSync("node_modules/uplot/LICENSE", "dist/admin/uplot-LICENSE.txt");

/** Builds the npm package, which is published from dist/sdk. */
async function buildSDK() {
  await build({ ...sdk, outfile: "dist/sdk/index.js" });
  await build({ ...forPages, outfile: "dist/sdk/badged.min.js" });
  run("tsc", "-p", "tsconfig.declarations.json");
  for (const file of ["sdk/package.json", "sdk/README.md", "../LICENSE"]) {
    copyFileSync(file, join("dist/sdk", basename(file)));
  }
}

/** Prints the size of the minified SDK. Returns the exit code: 1 if it is too large. */
async function measure() {
  const { outputFiles } = await build({ ...forPages, write: false });
  const bytes = gzipSync(outputFiles[0].contents, { level: 9 }).length;
  console.log(`SDK: ${bytes} bytes gzipped, limit ${SDK_LIMIT_BYTES}`);
  return bytes > SDK_LIMIT_BYTES ? 1 : 0;
}

/** Builds a page from its folder: src/main.ts, src/worker.ts if it has one, css/app.css and index.html. */
async function buildPage(name) {
  await build({
    ...common,
    entryPoints: { app: `${name}/src/main.ts` },
    outdir: `dist/${name}`,
  });
  const worker = `${name}/src/worker.ts`;
  if (existsSync(worker)) {
    await build({ ...common, entryPoints: { worker }, outdir: `dist/${name}`, format: "iife" });
  }
  await build({
    ...common,
    entryPoints: { app: `${name}/css/app.css` },
    outdir: `dist/${name}`,
    target: ["chrome111", "firefox113", "safari16.4"],
  });
  copyFileSync(`${name}/index.html`, `dist/${name}/index.html`);
  copyFileSync("page/icon.svg", `dist/${name}/icon.svg`);
}

/** Runs the tests of all folders. Returns the exit code. */
async function test() {
  const out = mkdtempSync(join(tmpdir(), "badged-web-"));
  try {
    await build({
      ...common,
      entryPoints: ["sdk/test", "demo/test", "admin/test"].flatMap((folder) =>
        readdirSync(folder)
          .filter((file) => file.endsWith(".test.ts"))
          .map((file) => `${folder}/${file}`),
      ),
      outbase: ".",
      outdir: out,
      outExtension: { ".js": ".mjs" },
      platform: "node",
      sourcemap: "inline",
    });
    const files = readdirSync(out, { recursive: true })
      .filter((file) => file.endsWith(".mjs"))
      .map((file) => join(out, file));
    return spawnSync("node", ["--enable-source-maps", "--test", ...files], { stdio: "inherit" })
      .status;
  } finally {
    rmSync(out, { recursive: true });
  }
}

function run(tool, ...args) {
  const { status } = spawnSync(`node_modules/.bin/${tool}`, args, { stdio: "inherit" });
  if (status !== 0) process.exit(1);
}
