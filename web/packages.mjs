// Checks the npm packages as their users get them: packs each one in dist, lints
// the tarball, checks its types with each way to resolve modules, installs all of
// them from their tarballs, and loads them in Node. Needs no network.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { publint } from "publint";
import { formatMessage } from "publint/utils";

process.chdir(fileURLToPath(new URL(".", import.meta.url)));

const NAMES = ["sdk", "react", "vue", "element"];
const out = mkdtempSync(join(tmpdir(), "badged-packages-"));
try {
  const run = (command, ...args) => execFileSync(command, args, { encoding: "utf8" });
  const modules = join(out, "node_modules");
  mkdirSync(join(modules, "@badged"), { recursive: true });
  for (const name of ["react", "vue", "@vue", "@types", "csstype"]) {
    symlinkSync(join(process.cwd(), "node_modules", name), join(modules, name));
  }
  for (const name of NAMES) {
    const [{ filename, files }] = JSON.parse(
      run("npm", "pack", "--json", "--offline", "--pack-destination", out, `./dist/${name}`),
    );
    const tarball = join(out, filename);
    const folder = join(modules, "@badged", name);
    mkdirSync(folder);
    run("tar", "-xzf", tarball, "-C", folder, "--strip-components=1");

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

  const exported = { sdk: "Badged", react: "useBadge", vue: "useBadge", element: "BadgedCount" };
  for (const [name, value] of Object.entries(exported)) {
    writeFileSync(
      join(out, `${name}.mjs`),
      `import { ${value} } from "@badged/${name}"; if (!${value}) throw new Error();`,
    );
    writeFileSync(
      join(out, `${name}.cjs`),
      `const { ${value} } = require("@badged/${name}"); if (!${value}) throw new Error();`,
    );
    run("node", join(out, `${name}.mjs`));
    run("node", join(out, `${name}.cjs`));
  }
} catch (error) {
  // attw and npm say on stdout what is wrong.
  console.error(error.stdout ?? "", error.message);
  process.exitCode = 1;
} finally {
  rmSync(out, { recursive: true });
}
