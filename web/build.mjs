// Builds the packages and the pages into dist, which is committed: `node build.mjs`.
// With --test it bundles and runs the tests instead; with --size it checks the
// sizes of the packages.

import { spawnSync } from "node:child_process";
import {
  copyFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

process.chdir(fileURLToPath(new URL(".", import.meta.url)));

/** The npm packages, each in a folder of its name, and the largest size gzipped. */
const PACKAGES = {
  sdk: 13.75 * 1024,
  react: 3 * 1024,
  vue: 3 * 1024,
  element: 3 * 1024,
  publish: 3 * 1024,
};

/** What the packages expect beside them: their peer dependencies. */
const external = ["@badged/sdk", "react", "vue"];

/** Settings of all bundles. tsconfig.json resolves the packages for the pages. */
const common = {
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  logLevel: "warning",
};

/** For pages without a bundler: `<script src="badged.min.js">`, then `new badged.Badged(…)`. */
const forPages = { format: "iife", globalName: "badged", minify: true };

if (process.argv.includes("--test")) process.exit(await test());
if (process.argv.includes("--size")) process.exit(await measure());

await import("./events.mjs");
rmSync("dist", { recursive: true, force: true });
await buildPackages();
await buildPage("demo");
await buildPage("admin");
copyFileSync("node_modules/uplot/LICENSE", "dist/admin/uplot-LICENSE.txt");

/** Builds the npm packages, which are published from dist/NAME. */
async function buildPackages() {
  for (const name of Object.keys(PACKAGES)) await buildPackage(name);
  const out = mkdtempSync(join(tmpdir(), "badged-web-"));
  run("tsc", "-p", "tsconfig.declarations.json", "--outDir", out);
  for (const name of Object.keys(PACKAGES)) {
    const from = join(out, name, "src");
    for (const file of readdirSync(from)) {
      // Node takes the types in the folder of the CommonJS build for those of CommonJS.
      for (const to of [`dist/${name}`, `dist/${name}/cjs`]) {
        copyFileSync(join(from, file), join(to, file));
      }
    }
  }
  rmSync(out, { recursive: true });
}

async function buildPackage(name) {
  const folder = `dist/${name}`;
  // The package has its sources, so that its source maps need not repeat them.
  cpSync(`${name}/src`, `${folder}/src`, { recursive: true });
  const from = (file) => `${folder}/src/${file}.ts`;
  const options = {
    ...common,
    entryPoints: (name === "sdk" ? ["index", "worker"] : ["index"]).map(from),
    sourcemap: true,
    sourcesContent: false,
  };
  await build({ ...options, external, outdir: folder });
  await build({ ...options, external, format: "cjs", outdir: `${folder}/cjs` });
  writeFileSync(`${folder}/cjs/package.json`, '{ "type": "commonjs" }\n');
  if (name === "sdk") {
    const script = (of, file, how) =>
      build({ ...options, ...how, entryPoints: [from(of)], outfile: `${folder}/${file}` });
    await script("index", "badged.min.js", forPages);
    await script("badged-worker", "badged-worker.js", { format: "iife" });
  }
  for (const file of [`${name}/package.json`, `${name}/README.md`, "../LICENSE"]) {
    copyFileSync(file, join(folder, basename(file)));
  }
}

/** Prints the sizes of the packages. Returns the exit code: 1 if one is too large. */
async function measure() {
  let status = 0;
  for (const [name, limit] of Object.entries(PACKAGES)) {
    const options = {
      ...common,
      entryPoints: [`${name}/src/index.ts`],
      minify: true,
      write: false,
    };
    const { outputFiles } = await build(
      name === "sdk" ? { ...options, ...forPages } : { ...options, external },
    );
    const bytes = gzipSync(outputFiles[0].contents, { level: 9 }).length;
    console.log(`${name}: ${bytes} bytes minified and gzipped, limit ${limit}`);
    if (bytes > limit) status = 1;
    const said = `${Math.max(1, Math.round(bytes / 1024))} KiB gzipped`;
    if (!readFileSync(`${name}/README.md`, "utf8").includes(said)) {
      console.error(`${name}/README.md does not say "${said}"`);
      status = 1;
    }
  }
  return status;
}

/** Builds a page from its folder: src/main.ts, css/app.css and index.html. The demo also has the service worker. */
async function buildPage(name) {
  await build({
    ...common,
    entryPoints: { app: `${name}/src/main.ts` },
    outdir: `dist/${name}`,
  });
  if (name === "demo") copyFileSync("dist/sdk/badged-worker.js", "dist/demo/badged-worker.js");
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
  // Here the bundles find the packages that stay outside of them.
  mkdirSync("node_modules/.tests", { recursive: true });
  const out = mkdtempSync("node_modules/.tests/");
  try {
    await build({
      ...common,
      entryPoints: [...Object.keys(PACKAGES), "demo", "admin"]
        .map((name) => `${name}/test`)
        .filter((folder) => existsSync(folder))
        .flatMap((folder) =>
          readdirSync(folder)
            .filter((file) => file.endsWith(".test.ts"))
            .map((file) => `${folder}/${file}`),
        ),
      outbase: ".",
      outdir: out,
      outExtension: { ".js": ".mjs" },
      platform: "node",
      external: ["esbuild", "react", "react-dom", "vue"],
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
