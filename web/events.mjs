// Writes the types of events for publishers, in TypeScript and Python, from the description
// of the API: publish/src/events.ts and python/badged_publish/events.py. The build calls it.

import { readFileSync, writeFileSync } from "node:fs";

const { schemas } = JSON.parse(readFileSync("../docs/reference/openapi.json", "utf8")).components;
const named = (ref) => ref.slice(ref.lastIndexOf("/") + 1);
const events = schemas.Event.oneOf.map(({ $ref }) => named($ref));
const notice = "Generated from docs/reference/openapi.json by `npm run build`";
/** What the publisher sets, or the type and the data of each event do. */
const SET = ["specversion", "type", "data"];

/** The fields of a schema in order: the type by a language, whether it is required, its description. */
function fieldsOf(name, type) {
  const { properties, required = [] } = schemas[name];
  return Object.entries(properties).map(([field, schema]) => ({
    field,
    type: type(schema),
    // The publisher has a source for events without one.
    required: required.includes(field) && field !== "source",
    description: schema.description,
  }));
}

function typescript() {
  const type = (s) => {
    if (s.$ref) return named(s.$ref);
    if (s.const) return JSON.stringify(s.const);
    if (s.enum) return s.enum.map((value) => JSON.stringify(value)).join(" | ");
    if (s.type === "integer") return "Seq";
    if (s.type === "array") return `readonly ${type(s.items)}[]`;
    if (s.type === "object") return `{ readonly [name: string]: ${type(s.additionalProperties)} }`;
    return s.type;
  };
  const body = (fields) =>
    fields
      .map((f) => `  /** ${f.description} */\n  ${f.field}${f.required ? "" : "?"}: ${f.type};\n`)
      .join("");
  const block = (name, of, head = `interface ${name}`) =>
    `export ${head} {\n${body(fieldsOf(of, type))}}\n`;
  const envelope = fieldsOf(events[0], type).filter(({ field }) => !SET.includes(field));
  const parts = [
    `// ${notice}.\n`,
    "/** A whole number. Above 2^53 it must be a bigint or its digits: numbers are rounded there. */\nexport type Seq = number | bigint | string;\n",
    `/** What all events have. */\nexport interface Envelope {\n${body(envelope)}}\n`,
    block("Notification", "Notification"),
  ];
  for (const name of events) {
    const { description, properties } = schemas[name];
    parts.push(
      `/** ${description} */\nexport interface ${name} extends Envelope {\n  type: ${type(properties.type)};\n  data: ${name}Data;\n}\n`,
      block(`${name}Data`, `${name}Data`),
    );
  }
  parts.push(
    `/** An event, by its type. */\nexport type BadgedEvent =\n${events.map((name) => `  | ${name}`).join("\n")};\n`,
  );
  return parts.join("\n");
}

function python() {
  const type = (s) => {
    if (s.$ref) return named(s.$ref);
    if (s.const) return `Literal[${JSON.stringify(s.const)}]`;
    if (s.enum) return `Literal[${s.enum.map((value) => JSON.stringify(value)).join(", ")}]`;
    if (s.type === "integer") return "Union[int, str]";
    if (s.type === "boolean") return "bool";
    if (s.type === "array") return `List[${type(s.items)}]`;
    if (s.type === "object") return `Dict[str, ${type(s.additionalProperties)}]`;
    return "str";
  };
  const block = (name, of, drop = []) => {
    const fields = fieldsOf(of, type).filter(({ field }) => !drop.includes(field));
    // Python before 3.11 has no NotRequired: what is required is in a base class.
    const [required, optional] = [true, false].map((is) =>
      fields.filter((f) => f.required === is).map((f) => `    ${f.field}: ${f.type}\n`),
    );
    const doc = schemas[of].description ? `    """${schemas[of].description}"""\n\n` : "";
    if (required.length === 0)
      return `class ${name}(TypedDict, total=False):\n${doc}${optional.join("")}`;
    if (optional.length === 0) return `class ${name}(TypedDict):\n${doc}${required.join("")}`;
    return `class _${name}(TypedDict):\n${required.join("")}\n\nclass ${name}(_${name}, total=False):\n${doc}${optional.join("")}`;
  };
  const parts = [
    `"""The events. ${notice}."""\n\nfrom typing import Dict, List, Literal, TypedDict, Union\n`,
    block("Notification", "Notification"),
    ...events.flatMap((name) => [
      block(`${name}Data`, `${name}Data`),
      block(name, name, ["specversion"]),
    ]),
    `Event = Union[\n${events.map((name) => `    ${name},\n`).join("")}]\n`,
  ];
  return parts.join("\n\n");
}

writeFileSync("publish/src/events.ts", typescript());
writeFileSync("python/badged_publish/events.py", python());
