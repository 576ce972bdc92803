"""Stores a chat message and publishes its event in one transaction:

    DATABASE_URL=postgres://chat@localhost/chat python3 publish.py

It needs psycopg 3.
"""

import os

import psycopg
from psycopg.types.json import Jsonb


def send(conn, room, sender, recipients, body):
    """Stores a message and publishes it within the transaction of conn.

    Returns the seq and the position, which is valid for at_least once the
    transaction has committed.
    """
    (seq,) = conn.execute(
        "INSERT INTO messages (room, sender, body) VALUES (%s, %s, %s) RETURNING seq",
        (room, sender, body),
    ).fetchone()
    event = {
        "specversion": "1.0",
        "id": f"{room}/{seq}",
        "source": "chat",
        "type": "message.delivered",
        "data": {
            "conversation_id": room,
            "seq": seq,
            "sender_id": sender,
            "user_ids": recipients,
        },
    }
    (position,) = conn.execute("SELECT badged.publish(%s)", (Jsonb(event),)).fetchone()
    return seq, position


# With autocommit, only conn.transaction() begins a transaction.
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
    conn.execute(
        """
        CREATE TABLE IF NOT EXISTS messages (
            seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            room   text NOT NULL,
            sender text NOT NULL,
            body   text NOT NULL
        )
        """
    )

    with conn.transaction():
        seq, position = send(conn, "design-crew", "ben", ["ada", "chloe"], "Shipping it")
    print(f"message {seq} is stored and published, position {position}")

    with conn.transaction() as changed_mind:
        seq, _ = send(conn, "design-crew", "ben", ["ada", "chloe"], "Or not")
        raise psycopg.Rollback(changed_mind)  # as any exception does
    print(f"message {seq} was rolled back: it is neither stored nor published")
