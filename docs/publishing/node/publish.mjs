// Stores a chat message and publishes its event in one transaction:
//
//     npm ci
//     DATABASE_URL=postgres://chat@localhost/chat node publish.mjs

import pg from "pg";

/**
 * Stores a message and publishes it within the transaction of client. Returns
 * the seq and the position, which is valid for at_least once the transaction has
 * committed. Both are strings, since they have 64 bits.
 */
async function send(client, room, sender, recipients, body) {
  const stored = await client.query(
    "INSERT INTO messages (room, sender, body) VALUES ($1, $2, $3) RETURNING seq",
    [room, sender, body],
  );
  const { seq } = stored.rows[0];
  const event = {
    specversion: "1.0",
    id: `${room}/${seq}`,
    source: "chat",
    type: "message.delivered",
    data: {
      conversation_id: room,
      seq: Number(seq), // exact up to 2^53
      sender_id: sender,
      user_ids: recipients,
    },
  };
  const published = await client.query("SELECT badged.publish($1) AS position", [JSON.stringify(event)]);
  return { seq, position: published.rows[0].position };
}

/** Runs work in a transaction; an error rolls it back. */
async function transaction(client, work) {
  await client.query("BEGIN");
  try {
    const result = await work();
    await client.query("COMMIT");
    return result;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  await client.query(`
    CREATE TABLE IF NOT EXISTS messages (
        seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        room   text NOT NULL,
        sender text NOT NULL,
        body   text NOT NULL
    )`);

  const { seq, position } = await transaction(client, () =>
    send(client, "design-crew", "ben", ["ada", "chloe"], "Shipping it"),
  );
  console.log(`message ${seq} is stored and published, position ${position}`);

  const changedMind = new Error("changed my mind");
  let unsent;
  try {
    await transaction(client, async () => {
      unsent = await send(client, "design-crew", "ben", ["ada", "chloe"], "Or not");
      throw changedMind;
    });
  } catch (error) {
    if (error !== changedMind) throw error;
  }
  console.log(`message ${unsent.seq} was rolled back: it is neither stored nor published`);
} finally {
  await client.end();
}
