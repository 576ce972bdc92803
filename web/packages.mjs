// Checks the npm packages as their users get them: packs each one in dist, installs them
// by the commands of the SDK's README, lints the tarballs, checks their types with each
// way to resolve modules, compiles the samples of their READMEs, and loads them in Node.
// Needs no network.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { publint } from "publint";
import { formatMessage } from "publint/utils";

process.chdir(fileURLToPath(new URL(".", import.meta.url)));

const NAMES = ["sdk", "react", "vue", "element", "publish"];
const out = mkdtempSync(join(tmpdir(), "badged-packages-"));
try {
  const run = (command, ...args) => execFileSync(command, args, { encoding: "utf8" });
  // Above the app, where its packages find them: npm removes what it did not install.
  mkdirSync(join(out, "node_modules"));
  for (const name of ["react", "vue", "@vue", "@types", "csstype"]) {
    symlinkSync(join(process.cwd(), "node_modules", name), join(out, "node_modules", name));
  }
  const app = join(out, "app");
  mkdirSync(app);
  writeFileSync(join(app, "package.json"), '{"name": "app", "private": true}');
  const packages = NAMES.map((name) => {
    const pack = ["pack", "--json", "--offline", "--pack-destination", app, `./dist/${name}`];
    const [{ filename, files }] = JSON.parse(run("npm", ...pack));
    return { name, filename, files };
  });
  install(app);
  for (const { name, filename, files } of packages) {
    const tarball = join(app, filename);
    const folder = join(app, "node_modules/@badged", name);

    // A source map names sources that the package has.
    const packed = new Set(files.map(({ path }) => path));
    for (const path of packed) {
      if (!path.endsWith(".js.map")) continue;
      for (const source of JSON.parse(readFileSync(join(folder, path), "utf8")).sources) {
        const found = new URL(source, `file:///${path}`).pathname.slice(1);
        if (!packed.has(found)) throw new Error(`@badged/${name}: ${path} names ${found}`);
      }
    }
    const { messages, pkg } = await publint({ pkgDir: folder, strict: true, pack: false });
    if (messages.length > 0) {
      const said = messages.map((message) => formatMessage(message, pkg));
      throw new Error(`@badged/${name}: ${said.join("\n")}`);
    }
    run("node_modules/.bin/attw", tarball);
    console.log(`@badged/${name}: ${packed.size} files`);
  }

  const exported = {
    sdk: "Badged",
    react: "useBadge",
    vue: "useBadge",
    element: "BadgedCount",
    publish: "Publisher",
  };
  for (const [name, value] of Object.entries(exported)) {
    writeFileSync(
      join(app, `${name}.mjs`),
      `import { ${value} } from "@badged/${name}"; if (!${value}) throw new Error();`,
    );
    writeFileSync(
      join(app, `${name}.cjs`),
      `const { ${value} } = require("@badged/${name}"); if (!${value}) throw new Error();`,
    );
    run("node", join(app, `${name}.mjs`));
    run("node", join(app, `${name}.cjs`));
  }
  compile(app, run);
} catch (error) {
  // attw and npm say on stdout what is wrong.
  console.error(error.stdout ?? "", error.message);
  process.exitCode = 1;
} finally {
  rmSync(out, { recursive: true });
}

/** Runs the commands of two READMEs in an app that has the tarballs and a checkout. */
function install(app) {
  symlinkSync(fileURLToPath(new URL("..", import.meta.url)), join(app, "badged"));
  const commands = ["sdk", "publish"].flatMap((name) => {
    const readme = readFileSync(`${name}/README.md`, "utf8");
    const section = readme.split("\n## Install\n")[1].split("\n## ")[0];
    return [...section.matchAll(/```sh\n(.*?)```/gs)].map(([, text]) => text);
  });
  // react and vue are there already.
  const env = { ...process.env, npm_config_offline: "true", npm_config_legacy_peer_deps: "true" };
  execFileSync("sh", ["-ec", commands.join("\n")], { cwd: app, env, encoding: "utf8" });
  const { dependencies } = JSON.parse(readFileSync(join(app, "package.json"), "utf8"));
  const missing = NAMES.filter((name) => !dependencies[`@badged/${name}`]);
  if (missing.length > 0) throw new Error(`no README installs ${missing}`);
}

/** Compiles the samples of the packages' READMEs as an app does, for bundlers and for Node. */
function compile(app, run) {
  const samples = NAMES.flatMap((name) => {
    const readme = readFileSync(join(app, "node_modules/@badged", name, "README.md"), "utf8");
    return [...readme.matchAll(/```(tsx?)\n(.*?)```/gs)].map(([, language, text], i) => {
      const file = join(app, `${name}-${i}.${language}`);
      writeFileSync(file, text);
      return file;
    });
  });
  const options = ["--ignoreConfig", "--noEmit", "--strict", "--exactOptionalPropertyTypes"];
  options.push("--jsx", "react-jsx", "--lib", "es2022,dom", "--target", "es2022");
  for (const [module, resolution] of [
    ["esnext", "bundler"],
    ["nodenext", "nodenext"],
  ]) {
    const resolve = ["--module", module, "--moduleResolution", resolution];
    run("node_modules/.bin/tsc", ...options, ...resolve, ...samples);
  }
}
